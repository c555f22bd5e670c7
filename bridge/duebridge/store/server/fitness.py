"""Checks whether a server may hold envelopes: its version, eviction policy and persistence."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import redis.utils

from duebridge.config.durability import DurabilityNeeds
from duebridge.errors import StoreError, StoreUnavailable, StoreUnfit
from duebridge.store.keys import Shard
from duebridge.store.server.connection import Connection
from duebridge.store.server.errors import translated_errors
from duebridge.store.server.sets.cluster import ask_primaries, primaries

Info: TypeAlias = dict[str, Any]


def read_info(connection: Connection, *sections: str) -> list[Info]:
    """Return sections of INFO, one mapping for each node; raises the client's errors."""
    return [_info(connection, sections, at) for at in primaries(connection.client)]


def _info(connection: Connection, sections: Iterable[str], at: Mapping[str, Any]) -> Info:
    client: Any = connection.client
    answers = [client.info(section, **at) for section in sections]
    return {name: value for answer in answers for name, value in answer.items()}


def _answering(connection: Connection) -> list[Info]:
    """Return what the nodes that answer say of themselves; raises as `ask_primaries`.

    One that reads its data after a restart is away: until then it reports no persistence.
    """
    return ask_primaries(connection.client, partial(_loaded_info, connection)).answers


def _loaded_info(connection: Connection, at: Mapping[str, Any]) -> Info:
    info = _info(connection, ("server", "memory", "persistence", "replication"), at)
    if int(info.get("loading", 0)):
        raise StoreUnavailable("the store is loading its data from disk; try again when it is done")
    return info


def silent_nodes(connection: Connection) -> list[str]:
    """Return the Cluster's nodes, by name, that are away: whether they are fit is unknown.

    Raises `StoreError`.
    """
    if not connection.is_cluster:
        return []
    return ask_primaries(connection.client, partial(_loaded_info, connection)).away


def server_name(info: Info) -> tuple[str, str]:
    """Return `Redis` or `Valkey`, and its version."""
    if info.get("server_name") == "valkey":
        return "Valkey", str(info.get("valkey_version"))
    return "Redis", str(info.get("redis_version"))


# To allow these helps nobody: an older server compiles no script of ours.
INDISPENSABLE = frozenset({"version"})
_NOTHING = DurabilityNeeds()
LEAST = {"Redis": (7, 0), "Valkey": (7, 2)}


def check_fitness(
    connection: Connection,
    allow_unfit: tuple[str, ...] = (),
    repeat_for_s: float = 0.0,
    needs: DurabilityNeeds = _NOTHING,
) -> list[str]:
    """Return the faults that are allowed by name; `needs` are those of the routes' durability.

    Raises `StoreUnfit`, naming everything that is wrong and how to fix it; and `StoreUnavailable`
    after `repeat_for_s`.
    """
    found = connection.repeat_while_away(
        lambda: fitness_faults(connection, needs), repeat_for_s
    ).value
    refused = [f"{name}: {fault}" for name, fault in found.items() if name not in allow_unfit]
    if refused:
        offer = "; to run all the same, name each in store.allow_unfit"
        can_run = INDISPENSABLE.isdisjoint(found)
        text = "; ".join(refused) + ". `duebridge doctor` says how to fix it"
        raise StoreUnfit(text + offer * can_run)
    return [f"{name}: {fault}" for name, fault in found.items()]


def fitness_faults(connection: Connection, needs: DurabilityNeeds = _NOTHING) -> dict[str, str]:
    """Return the faults by their names in `store.allow_unfit`; `fsync` and `replicas` where needed.

    They are those of the nodes that answer; `silent_nodes` are the others.

    Raises `StoreUnavailable`, also while a server that was restarted reads its data, and
    `StoreUnfit` where it tells of itself what neither Redis nor Valkey does.
    """
    try:
        nodes = _answering(connection)
        found = _faults(nodes, needs)
        if needs.fsync and (fault := _fsync_fault(connection)):
            found["fsync"] = fault
        return found
    except ValueError as error:  # a figure of INFO is no number
        raise StoreUnfit(f"expected INFO as Redis or Valkey gives it; got {error}") from error


def _faults(nodes: Sequence[Info], needs: DurabilityNeeds) -> dict[str, str]:
    checks: dict[str, Callable[[Info], str]] = {
        "version": _version_fault,
        "eviction": _eviction_fault,
        "persistence": _persistence_fault,
        "replicas": partial(_replicas_fault, needs),
    }
    found = {name: next(filter(None, map(check, nodes)), "") for name, check in checks.items()}
    return {name: fault for name, fault in found.items() if fault}


def _version_fault(info: Info) -> str:
    name, version = server_name(info)
    least = LEAST[name]
    if tuple(int(part) for part in version.split(".")[:2]) >= least:
        return ""
    return f"expected {name} {least[0]}.{least[1]} or newer; got {version}"


def _eviction_fault(info: Info) -> str:
    policy = info.get("maxmemory_policy")
    if policy == "noeviction":
        return ""
    return f"expected maxmemory-policy noeviction, so that nothing vanishes; got {policy}"


def _persistence_fault(info: Info) -> str:
    if int(info.get("aof_enabled", 0)):
        return ""
    return "expected appendonly yes, so that a restart loses nothing; got no append-only file"


def _replicas_fault(needs: DurabilityNeeds, info: Info) -> str:
    connected = int(info.get("connected_slaves", 0))
    if not needs.replicas or needs.replicas >= connected:
        return ""
    why = "any of them may be promoted, also one that lacks a confirmed write"
    return f"expected durability to wait for all {connected} replicas; got {needs.replicas}: {why}"


def missing_replicas(connection: Connection, needs: DurabilityNeeds) -> str:
    """Return how many replicas a durability waits for in vain; empty where they are connected.

    Raises `StoreError`.
    """
    if not needs.most_replicas:
        return ""
    nodes = _answering(connection)
    connected = min(int(node.get("connected_slaves", 0)) for node in nodes)
    if connected >= needs.most_replicas:
        return ""
    return f"a durability waits for {needs.most_replicas} replicas, and {connected} are connected"


def _fsync_fault(connection: Connection) -> str:
    """Return why a write that was answered may not be on disk; INFO does not tell."""
    client: Any = connection.client
    try:
        asked = ask_primaries(client, lambda at: client.config_get("append*", **at))
    except StoreUnavailable:
        raise
    except StoreError as error:
        return f"{_FSYNC}; CONFIG GET is refused: {error}"
    found = {
        f"appendonly {each.get('appendonly')}, appendfsync {each.get('appendfsync')}"
        for each in asked.answers
    }
    wrong = sorted(found - {"appendonly yes, appendfsync always"})
    return f"{_FSYNC}; got {wrong[0]}" if wrong else ""


_FSYNC = "expected appendonly yes and appendfsync always, as durability: fsync needs it"

HAS_HIREDIS: bool = redis.utils.HIREDIS_AVAILABLE


class Vitals(NamedTuple):
    """The figures of the fullest node of the store.

    `clock_ahead_ms` is the store's clock minus this machine's: of a Cluster that of the node
    farthest off. Where `maxmemory` is not set, the
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
    """Read the vitals of the nodes that answer; raises `StoreError`.

    `now_ms` replaces this machine's clock in tests.
    """
    clock = partial(_clock_ahead_ms, connection, now_ms or _now_ms)
    clocks_ms = ask_primaries(connection.client, clock).answers
    nodes = _answering(connection)
    worst = max(nodes, key=lambda node: int(node["used_memory"]) / max(1, _limit_bytes(node)))
    return Vitals(
        server=" ".join(server_name(worst)),
        clock_ahead_ms=max(clocks_ms, key=abs),
        used_bytes=int(worst["used_memory"]),
        limit_bytes=_limit_bytes(worst),
        is_limit_set=bool(worst.get("maxmemory")),
        is_primary=all(node.get("role") == "master" for node in nodes),
        is_append_only_written=all(node.get("aof_last_write_status") != "err" for node in nodes),
    )


def count_listeners(connection: Connection, shards: Sequence[Shard]) -> list[int]:
    """Count the workers that listen for hints of each shard; raises `StoreError`.

    On a Cluster they listen at the node of the shard's slot; former versions at any primary.
    """
    if not shards:
        return []
    client: Any = connection.client
    channels = [shard.wake for shard in shards]
    with translated_errors():
        found = [dict(client.pubsub_numsub(*channels, **at)) for at in primaries(client)]
        at_slot = [_listeners_at_slot(connection, channel) for channel in channels]
    return [
        some + sum(int(each.get(channel.encode(), 0)) for each in found)
        for some, channel in zip(at_slot, channels, strict=True)
    ]


def _listeners_at_slot(connection: Connection, channel: str) -> int:
    if not connection.is_cluster:
        return 0
    found = dict(connection.server_of(channel).pubsub_shardnumsub(channel))
    return int(found.get(channel.encode(), 0))


def _clock_ahead_ms(
    connection: Connection, now_ms: Callable[[], int], at: Mapping[str, Any]
) -> int:
    client: Any = connection.client
    before_ms = now_ms()
    seconds, microseconds = client.time(**at)
    after_ms = now_ms()
    return int(seconds) * 1000 + int(microseconds) // 1000 - (before_ms + after_ms) // 2


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _limit_bytes(node: Info) -> int:
    return int(node.get("maxmemory") or node.get("total_system_memory") or 0)
