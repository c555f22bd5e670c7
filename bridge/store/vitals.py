"""How the store is at this moment, as far as it tells: for people, not for the worker."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import redis.utils

from bridge.store.connection import Connection, translated_errors
from bridge.store.info import Info, is_cluster, read_info, server_name
from bridge.store.keys import Shard

HAS_HIREDIS: bool = redis.utils.HIREDIS_AVAILABLE


class Vitals(NamedTuple):
    """The worst node of the store: the one that is fullest.

    `clock_ahead_ms` is the store's clock minus this machine's. Where `maxmemory` is not set, the
    limit is the memory of the machine that the store runs on, and `is_limit_set` is false.
    """

    server: str
    clock_ahead_ms: int
    used_bytes: int
    limit_bytes: int
    is_limit_set: bool
    is_primary: bool
    is_append_only_written: bool


def read_vitals(connection: Connection, now_ms: Callable[[], int] | None = None) -> Vitals:
    """Return them; `now_ms` replaces this machine's clock and is for tests. Raises `StoreError`."""
    with translated_errors():
        ahead_ms = _clock_ahead_ms(connection, now_ms or _now_ms)
        nodes = read_info(connection, "server", "memory", "persistence", "replication")
    worst = max(nodes, key=lambda node: int(node["used_memory"]) / max(1, _limit_bytes(node)))
    return Vitals(
        server=" ".join(server_name(worst)),
        clock_ahead_ms=ahead_ms,
        used_bytes=int(worst["used_memory"]),
        limit_bytes=_limit_bytes(worst),
        is_limit_set=bool(worst.get("maxmemory")),
        is_primary=all(node.get("role") == "master" for node in nodes),
        is_append_only_written=all(node.get("aof_last_write_status") != "err" for node in nodes),
    )


def count_listeners(connection: Connection, shards: Sequence[Shard]) -> list[int]:
    """Return how many workers listen for hints of each shard; raises `StoreError`."""
    if not shards:
        return []
    client: Any = connection.client
    with translated_errors():
        answer = client.pubsub_numsub(*(shard.wake for shard in shards))
    found = dict(answer)
    return [int(found.get(shard.wake.encode(), 0)) for shard in shards]


def _clock_ahead_ms(connection: Connection, now_ms: Callable[[], int]) -> int:
    client: Any = connection.client
    options = {"target_nodes": client.get_random_node()} if is_cluster(connection) else {}
    before_ms = now_ms()
    seconds, microseconds = client.time(**options)
    after_ms = now_ms()
    return int(seconds) * 1000 + int(microseconds) // 1000 - (before_ms + after_ms) // 2


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _limit_bytes(node: Info) -> int:
    return int(node.get("maxmemory") or node.get("total_system_memory") or 0)
