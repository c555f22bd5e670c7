"""What workers tell: their records, and which one has the gauge lease of a shard."""

import pytest

from duebridge.store.keys import worker_key, workers_key
from duebridge.store.server.connection import Connection
from duebridge.store.wire.replies import WatchReply
from duebridge.store.workers import KEPT_MS, HeldTarget, LaneRecord, WorkerRecord, Workers
from tests.support.desk import Desk

NOW_MS = 1_800_000_000_000


@pytest.fixture
def workers(connection: Connection, namespace: str) -> Workers:
    return Workers(connection, namespace)


def record(worker_id: str, at_ms: int = NOW_MS) -> WorkerRecord:
    lane = LaneRecord("orders", False, "refused", 500, 3)
    held = HeldTarget("orders", "orders:t", "Missing: no topic", NOW_MS - 5, True, 1, ("r",))
    return WorkerRecord(worker_id, "host", 7, "1.0", NOW_MS, at_ms, (lane,), (held,), ("r",))


def test_read_returns_what_each_worker_wrote_last(workers: Workers) -> None:
    assert workers.read() == []
    workers.write(record("b"))
    workers.write(record("a"))
    workers.write(record("b", NOW_MS + 5_000))
    assert workers.read() == [record("a"), record("b", NOW_MS + 5_000)]


def test_write_lets_the_record_expire_and_forgets_silent_workers(
    workers: Workers, connection: Connection, namespace: str
) -> None:
    workers.write(record("a"))
    assert 0 < connection.client.pttl(worker_key(namespace, "a")) <= KEPT_MS
    workers.write(record("b", NOW_MS + KEPT_MS))
    assert connection.client.zrange(workers_key(namespace), 0, -1) == [b"b"]


def test_write_to_a_full_store_is_read_all_the_same(server: Connection) -> None:
    workers = Workers(server, "full")
    server.client.config_set("maxmemory", 1)
    try:
        workers.write(record("a"))
    finally:
        server.client.config_set("maxmemory", 0)
    assert workers.read() == [record("a")]


def test_remove_takes_the_worker_away(workers: Workers) -> None:
    workers.write(record("a"))
    workers.remove("a")
    assert workers.read() == []


def test_read_leaves_out_a_damaged_record(
    workers: Workers, connection: Connection, namespace: str
) -> None:
    for worker_id in ("a", "b"):
        workers.write(record(worker_id))
    connection.client.set(worker_key(namespace, "a"), b'{"id": "a", "host": \xff')
    assert workers.read() == [record("b")]


KEEP_MS = 15_000


def asked(desk: Desk, worker: str, keep_ms: int = KEEP_MS) -> tuple[int, int]:
    """How long the lease of whoever has it lasts, and whether that is `worker`."""
    reply = desk.store.watch(worker, keep_ms)
    assert reply.poll == desk.store.next()
    return reply.left_ms, reply.is_mine


def test_watch_that_nobody_has_is_the_first_worker_s(desk: Desk) -> None:
    desk.pending("a")
    assert desk.store.watch("one", KEEP_MS) == WatchReply(desk.store.next(), KEEP_MS, 1)
    desk.clock.advance(4000)
    assert asked(desk, "two") == (KEEP_MS - 4000, 0)


def test_watch_that_is_taken_again_lasts_anew(desk: Desk) -> None:
    asked(desk, "one")
    desk.clock.advance(KEEP_MS - 1)
    assert asked(desk, "one") == (KEEP_MS, 1)
    desk.clock.advance(KEEP_MS - 1)
    assert asked(desk, "two") == (1, 0)


def test_watch_that_has_ended_is_another_worker_s(desk: Desk) -> None:
    asked(desk, "one")
    desk.clock.advance(KEEP_MS)
    assert asked(desk, "two") == (KEEP_MS, 1)
    assert asked(desk, "one") == (KEEP_MS, 0)


def test_watch_that_is_given_up_is_anybody_s(desk: Desk) -> None:
    asked(desk, "one")
    assert asked(desk, "one", 0) == (0, 0)
    assert asked(desk, "two") == (KEEP_MS, 1)


def test_watch_of_another_worker_is_not_given_up(desk: Desk) -> None:
    asked(desk, "one")
    assert asked(desk, "two", 0) == (KEEP_MS, 0)
    assert asked(desk, "one") == (KEEP_MS, 1)


@pytest.mark.parametrize("found", ["", "one", "9 ", "-1 one", "1e999 one", f"{10**14}"])
def test_watch_that_is_damaged_is_nobody_s(desk: Desk, found: str) -> None:
    desk.client.hset(desk.shard.key("meta"), "watch", found)
    assert asked(desk, "two") == (KEEP_MS, 1)
