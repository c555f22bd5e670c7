"""A script that fails halfway loses nothing: the destination is written before the source goes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from duebridge.errors import StoreError
from duebridge.ports.publisher import Reason
from duebridge.store.server.connection import open_connection
from duebridge.store.wire.leases import Claim
from duebridge.store.wire.transitions import KeptMessage
from tests.support.desk import LEASE_MS, YEAR_MS, Desk, burial, envelope, postponed
from tests.support.model.invariants import STATES
from tests.support.servers import redis_server

USER = "limited"
COMMANDS = ("zadd", "zrem", "zremrangebyrank", "hset", "hdel", "hincrby", "xadd", "publish")
Bring = Callable[[Desk], Any]
Move = Callable[[Desk, Any], object]


def due(desk: Desk) -> None:
    desk.retry("a")
    desk.pending("b")
    desk.clock.advance(1000)


def one_expired(desk: Desk) -> None:
    desk.ready("a", envelope("b", expires="2s"))
    desk.clock.advance(1000)


def alone(desk: Desk) -> Claim:
    desk.suspect("a")
    return desk.store.claim(1, LEASE_MS, alone=True)


def run_out(desk: Desk) -> None:
    alone(desk)
    desk.unack("b")
    desk.clock.advance(LEASE_MS)


def far(desk: Desk) -> None:
    desk.retry("a", delay_ms=90_000)


MOVES: dict[str, tuple[Bring, Move]] = {
    "schedule": (far, lambda desk, _: desk.schedule(envelope("a", body=b"x"), mode="replace")),
    "promote": (due, lambda desk, _: desk.store.promote()),
    "claim": (one_expired, lambda desk, _: desk.store.claim(9, LEASE_MS)),
    "retry": (lambda desk: desk.unack("a", "b"), lambda desk, held: desk.put_back(held)),
    "release": (alone, lambda desk, held: desk.store.release(held.token, ["a"])),
    "bury": (lambda d: d.unack("a"), lambda d, held: d.store.bury(held.token, [burial("a")])),
    "reclaim": (run_out, lambda desk, _: desk.store.reclaim(poison=1)),
    "shunt": (lambda desk: desk.dead("a", "b"), lambda desk, _: desk.store.shunt(9, LEASE_MS)),
    "postpone": (
        lambda d: d.shunt("a"),
        lambda d, held: d.store.postpone(held.token, postponed("a"), "t"),
    ),
    "replay": (lambda desk: desk.dead("a"), lambda desk, _: desk.store.replay(["a"])),
    "reschedule": (far, lambda desk, _: desk.store.reschedule("a", "+70", YEAR_MS)),
}


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    with redis_server(tmp_path_factory.mktemp("halfway")) as port, redis.Redis(port=port) as opened:
        opened.execute_command("ACL", "SETUSER", USER, "on", "nopass", "~*", "&*", "+@all")
        yield opened


@pytest.fixture
def desk(admin: redis.Redis) -> Iterator[Desk]:
    port = admin.get_connection_kwargs()["port"]
    connection = open_connection(f"redis://{USER}:any@127.0.0.1:{port}")
    yield Desk(connection, "halfway")
    connection.close()


@contextmanager
def failing(admin: redis.Redis, command: str) -> Iterator[None]:
    """Let every call of a command fail, in scripts too."""
    admin.execute_command("ACL", "SETUSER", USER, f"-{command}")
    try:
        yield
    finally:
        admin.execute_command("ACL", "SETUSER", USER, f"+{command}")


@pytest.mark.parametrize("name", MOVES)
def test_move_that_fails_halfway_loses_no_envelope(
    desk: Desk, admin: redis.Redis, name: str
) -> None:
    bring, move = MOVES[name]
    failed = []
    for command in COMMANDS:
        desk.delete()
        brought = bring(desk)
        living = set(desk.snapshot()["envelopes"])
        with failing(admin, command):
            try:
                move(desk, brought)
            except StoreError:
                failed.append(command)
        assert living <= still_known(desk), f"lost when {command} failed"
    assert len(failed) >= 2, "nothing failed"


KEPT = KeptMessage(envelope("a"), Reason.TOO_LARGE, "E\ntoo large")
ACCEPTING: dict[str, Callable[[Desk], object]] = {
    "schedule": lambda desk: desk.schedule("a"),
    "replace": lambda desk: desk.schedule("a", mode="replace"),
    "keep": lambda desk: desk.store.keep([KEPT]),
}


@pytest.mark.parametrize("name", ACCEPTING)
def test_accept_that_fails_halfway_has_a_place_once_it_is_called_again(
    desk: Desk, admin: redis.Redis, name: str
) -> None:
    failed = []
    for command in COMMANDS:
        desk.delete()
        with failing(admin, command):
            try:
                ACCEPTING[name](desk)
            except StoreError:
                failed.append(command)
        ACCEPTING[name](desk)
        assert still_known(desk) == {b"a"}, f"lost when {command} failed"
    assert {"hset", "zadd", "xadd"} <= set(failed)


def test_recall_of_a_record_without_a_place_knows_nothing(desk: Desk, admin: redis.Redis) -> None:
    desk.delete()
    with failing(admin, "zadd"), pytest.raises(StoreError):
        desk.schedule("a")
    assert desk.store.recall([("a", b"12345678")]) == [""]


def still_known(desk: Desk) -> set[bytes]:
    """The ids that have both a record and a place."""
    found = desk.snapshot()
    places = {name for state in STATES for name, _ in found[state]}
    return places & set(found["envelopes"])
