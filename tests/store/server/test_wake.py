"""Workers are woken by hints, and hear them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from duebridge.errors import StoreError, StoreUnavailable
from duebridge.store.batching import SharedRate
from duebridge.store.server.connection import Connection
from duebridge.store.wire.leases import Claim
from duebridge.worker.reporting import store_monitor
from duebridge.worker.reporting.store_monitor import StoreMonitor
from tests.support.desk import DAY_MS, Desk, acks, envelope
from tests.support.redis.least import admin_of
from tests.support.servers import wait_until

WITHIN_S = 60.0


class Listener:
    """Subscribed to a shard's channel; `heard` ends with a message of its own, so no one waits."""

    def __init__(self, desk: Desk) -> None:
        self._client, self._channel = desk.connection.server_of(desk.shard.wake), desk.shard.wake
        self._sharded = "s" if desk.connection.is_cluster else ""  # hints stay in their slot there
        self._pubsub = self._client.pubsub()
        getattr(self._pubsub, f"{self._sharded}subscribe")(self._channel)
        assert self._next()["type"] == f"{self._sharded}subscribe"

    def heard(self) -> list[int]:
        getattr(self._client, f"{self._sharded}publish")(self._channel, "end")
        found = []
        while (data := self._next()["data"]) != b"end":
            found.append(int(data))
        return found

    def _next(self) -> Any:
        message = self._pubsub.get_message(timeout=WITHIN_S)
        assert message is not None, "nothing came"
        return message

    def close(self) -> None:
        self._pubsub.close()


@pytest.fixture
def listener(desk: Desk) -> Iterator[Listener]:
    opened = Listener(desk)
    yield opened
    opened.close()


def release_twice(desk: Desk, claim: Claim) -> None:
    for _ in range(2):
        desk.store.release(claim.token, ["a"])


def look_and_settle(desk: Desk, claim: Claim) -> None:
    desk.store.next()
    desk.store.stats()
    desk.store.ack(acks(claim.token, "a"))
    desk.store.cancel("b")


A = envelope("a", "5s")
LATE = [envelope("b", "5s"), envelope("c", "9s")]
EARLY = [envelope("b", "4s"), envelope("c", "3s")]
REFUSED = [envelope("a", "1s"), envelope("d", "4s", expires="1s")]
HINTS: dict[str, tuple[Callable[[Desk], Any], Callable[[Desk, Any], Any], list[int]]] = {
    "first": (lambda desk: None, lambda desk, _: desk.pending(A), [5000]),
    "earlier": (lambda desk: desk.pending(A), lambda desk, _: desk.pending(*EARLY), [3000]),
    "later": (lambda desk: desk.pending(A), lambda desk, _: desk.pending(*LATE), []),
    "refused": (lambda desk: desk.pending(A), lambda desk, _: desk.schedule(*REFUSED), []),
    "moved up": (lambda d: d.pending(A), lambda d, _: d.store.reschedule("a", "+9", 99), [9]),
    "put off": (lambda d: d.pending(A), lambda d, _: d.store.reschedule("a", "+9000", 10**6), []),
    "replay": (lambda desk: desk.dead("a"), lambda d, _: d.store.replay(["a"], [70]), [70]),
    "release, stale": (lambda desk: desk.unack("a"), release_twice, [0]),
    "settle": (lambda desk: desk.unack("a", "b"), look_and_settle, []),
}


@pytest.mark.parametrize("name", HINTS)
def test_call_wakes_for_what_is_sooner_than_all_that_waits(
    desk: Desk, listener: Listener, name: str
) -> None:
    bring, call, expected = HINTS[name]
    brought = bring(desk)
    listener.heard()
    call(desk, brought)
    assert listener.heard() == [desk.clock() + ms for ms in expected]


def test_watch_of_a_fit_store_sees_its_memory_and_what_is_forgotten(server: Connection) -> None:
    server.client.config_set("maxmemory", "1gb")
    watch = StoreMonitor(server, lambda: {"old": 3})
    assert watch.snapshot is None
    watch.run_once()
    assert watch.snapshot is not None
    assert 0 < watch.snapshot.used_bytes < watch.snapshot.limit_bytes == 2**30
    assert (watch.snapshot.unfit, watch.snapshot.absent) == ((), {"old": 3})


def test_watch_of_a_store_that_became_unfit_names_what_nobody_allowed(server: Connection) -> None:
    server.client.config_set("maxmemory-policy", "allkeys-lru")
    server.client.config_set("appendonly", "no")
    watch = StoreMonitor(server, dict, allow_unfit=("persistence",))
    watch.run_once()
    assert watch.snapshot is not None
    assert watch.snapshot.unfit == ("eviction",)


def test_watch_of_a_store_that_went_away_has_seen_nothing(
    server: Connection, open_at: Callable[..., Connection]
) -> None:
    watch = StoreMonitor(server, dict)
    watch.run_once()
    gone = StoreMonitor(open_at("redis://127.0.0.1:1/0"), dict)
    gone.snapshot = watch.snapshot
    gone.run_once()
    assert gone.snapshot is None


def test_watch_of_a_store_that_does_not_tell_looks_again_soon(
    server: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_monitor, "AGAIN_S", 0.01)
    answers: Iterator[StoreError | dict[str, int]] = iter([StoreUnavailable("away"), {"old": 3}])

    def absent() -> dict[str, int]:
        if isinstance(answer := next(answers), StoreError):
            raise answer
        return answer

    watch = StoreMonitor(server, absent)
    watch.start()
    wait_until(lambda: watch.snapshot is not None, "a sample", WITHIN_S)
    watch.close()
    assert next(answers, None) is None


def test_pace_grants_no_more_than_its_rate_to_all_together(
    connection: Connection, desk: Desk
) -> None:
    one, other = (SharedRate(connection, desk.shard.namespace, "run", 50) for _ in range(2))
    wait_until(lambda: begins_window_that_lasts(connection, desk, one), "a window")
    assert other.take(30).units == 20
    refused = one.take(30)
    assert refused.units == 0
    assert 1000 < refused.wait_ms <= DAY_MS


def begins_window_that_lasts(connection: Connection, desk: Desk, pace: SharedRate) -> bool:
    """Take 30, and have their second not be over before the test is; False if it was."""
    key = f"{{{desk.shard.namespace}}}:pace:run"
    assert pace.take(30).units == 30
    assert -1 != admin_of(connection).pttl(key) <= 1000
    return bool(admin_of(connection).pexpire(key, DAY_MS))


def test_pace_grants_again_when_its_window_is_over(connection: Connection, desk: Desk) -> None:
    pace = SharedRate(connection, desk.shard.namespace, "run", 1000)
    assert pace.take(100).units == 100
    wait_until(lambda: pace.take(100).units == 100, "the next window")


def test_pace_of_another_name_is_another_rate(connection: Connection, desk: Desk) -> None:
    assert SharedRate(connection, desk.shard.namespace, "one", 10).take(10).units == 10
    assert SharedRate(connection, desk.shard.namespace, "two", 10).take(10).units == 10
