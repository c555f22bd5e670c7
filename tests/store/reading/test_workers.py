"""The records of workers: written, read, forgotten."""

import pytest

from duebridge.store.keys import worker_key, workers_key
from duebridge.store.server.connection import Connection
from duebridge.store.workers import KEPT_MS, HeldTarget, LaneRecord, WorkerRecord, Workers

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
