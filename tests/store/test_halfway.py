"""A script that fails halfway loses nothing: the destination is written before the source goes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis

from duebridge.errors import StoreError
from duebridge.ports.publisher import Reason
from duebridge.store.connection import open_connection
from duebridge.store.transitions import Burial
from tests.store.invariants import STATES
from tests.support.desk import LEASE_MS, YEAR_MS, Desk, envelope
from tests.support.servers import redis_server

USER = "limited"
COMMANDS = ("zadd", "zrem", "zremrangebyrank", "hset", "hdel", "hincrby", "xadd", "publish")
Call = Callable[[], object]


def schedule(desk: Desk) -> Call:
    desk.retry("a", delay_ms=90_000)
    given = envelope("a", body=b"other")
    return lambda: desk.schedule(given, replace=True)


def promote(desk: Desk) -> Call:
    desk.retry("a")
    desk.pending("b")
    desk.clock.advance(1000)
    return lambda: desk.store.promote()


def claim(desk: Desk) -> Call:
    desk.ready("a", envelope("b", expires="2s"))
    desk.clock.advance(1000)
    return lambda: desk.store.claim(9, LEASE_MS)


def retry(desk: Desk) -> Call:
    held = desk.unack("a", "b")
    return lambda: desk.put_back(held)


def release(desk: Desk) -> Call:
    desk.suspect("a")
    alone = desk.store.claim(1, LEASE_MS, alone=True)
    return lambda: desk.store.release(alone.token, ["a"])


def bury(desk: Desk) -> Call:
    held = desk.unack("a")
    return lambda: desk.store.bury(
        held.token,
        [Burial(id="a", reason=Reason.INVALID, is_failure=True, is_unsure=False, error="")],
    )


def reclaim(desk: Desk) -> Call:
    desk.suspect("a")
    desk.store.claim(1, LEASE_MS, alone=True)
    desk.unack("b")
    desk.clock.advance(LEASE_MS)
    return lambda: desk.store.reclaim(poison=1)


def shunt(desk: Desk) -> Call:
    desk.dead("a", "b")
    return lambda: desk.store.shunt(9, LEASE_MS)


def postpone(desk: Desk) -> Call:
    held = desk.shunt("a")
    return lambda: desk.store.postpone(held.token, ["a"], 5)


def replay(desk: Desk) -> Call:
    desk.dead("a")
    return lambda: desk.store.replay(["a"])


def reschedule(desk: Desk) -> Call:
    desk.retry("a", delay_ms=90_000)
    return lambda: desk.store.reschedule("a", "+70", YEAR_MS)


MOVES = [
    schedule,
    promote,
    claim,
    retry,
    release,
    bury,
    reclaim,
    shunt,
    postpone,
    replay,
    reschedule,
]


@pytest.fixture(autouse=True, scope="module")
def connection() -> None:
    """These tests bring a server of their own."""


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


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_move_that_fails_halfway_loses_no_envelope(
    desk: Desk, admin: redis.Redis, move: Callable[[Desk], Call]
) -> None:
    failed = []
    for command in COMMANDS:
        desk.delete()
        call = move(desk)
        living = set(desk.snapshot()["envelopes"])
        with failing(admin, command):
            try:
                call()
            except StoreError:
                failed.append(command)
        assert living <= still_known(desk), f"lost when {command} failed"
    assert len(failed) >= 2, "nothing failed"


def still_known(desk: Desk) -> set[bytes]:
    """The ids that have both a record and a place."""
    found = desk.snapshot()
    places = {name for state in STATES for name, _ in found[state]}
    return places & set(found["envelopes"])
