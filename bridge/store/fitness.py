"""Whether a server may hold envelopes: one that evicts or forgets breaks every promise."""

from typing import Any

from bridge.errors import StoreUnfit
from bridge.store.connection import Connection, translated_errors

LEAST_REDIS = (7, 0)
LEAST_VALKEY = (7, 2)


def check_fitness(connection: Connection, allow_unfit: tuple[str, ...] = ()) -> list[str]:
    """Return what is unfit but allowed by name: `version`, `eviction`, `persistence`.

    Raises `StoreUnfit`, naming everything that is wrong and how to mend it.
    """
    with translated_errors():
        info = _info(connection)
    faults = {
        "version": _version_fault(info),
        "eviction": _eviction_fault(info),
        "persistence": _persistence_fault(info),
    }
    found = {name: fault for name, fault in faults.items() if fault}
    refused = [f"{name}: {fault}" for name, fault in found.items() if name not in allow_unfit]
    if refused:
        raise StoreUnfit(
            "; ".join(refused) + ". To run all the same, name each in store.allow_unfit"
        )
    return [f"{name}: {fault}" for name, fault in found.items()]


def _info(connection: Connection) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for section in ("server", "memory", "persistence"):
        answer = connection.client.info(section)
        # A Cluster may answer by node; what holds for one must hold for all.
        nodes = list(answer.values()) if _is_by_node(answer) else [answer]
        found.update(nodes[0])
    return found


def _is_by_node(answer: dict[str, Any]) -> bool:
    return bool(answer) and all(isinstance(value, dict) for value in answer.values())


def _version_fault(info: dict[str, Any]) -> str:
    is_valkey = info.get("server_name") == "valkey"
    text = str(info.get("valkey_version") if is_valkey else info.get("redis_version"))
    found = tuple(int(part) for part in text.split(".")[:2])
    least = LEAST_VALKEY if is_valkey else LEAST_REDIS
    if found >= least:
        return ""
    name = "Valkey" if is_valkey else "Redis"
    return f"expected {name} {least[0]}.{least[1]} or newer; got {text}"


def _eviction_fault(info: dict[str, Any]) -> str:
    policy = info.get("maxmemory_policy")
    if policy == "noeviction":
        return ""
    return f"expected maxmemory-policy noeviction, so that nothing vanishes; got {policy}"


def _persistence_fault(info: dict[str, Any]) -> str:
    if int(info.get("aof_enabled", 0)):
        return ""
    return "expected appendonly yes, so that a restart loses nothing; got no append-only file"
