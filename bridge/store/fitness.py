"""Whether a server may hold envelopes: one that evicts or forgets breaks every promise."""

from collections.abc import Sequence

from bridge.errors import StoreUnavailable, StoreUnfit
from bridge.store.connection import Connection, translated_errors
from bridge.store.info import Info, read_info, server_name

LEAST = {"Redis": (7, 0), "Valkey": (7, 2)}


def check_fitness(connection: Connection, allow_unfit: tuple[str, ...] = ()) -> list[str]:
    """Return what is unfit but allowed by name: `version`, `eviction`, `persistence`.

    Raises `StoreUnfit`, naming everything that is wrong and how to mend it.
    """
    found = fitness_faults(connection)
    refused = [f"{name}: {fault}" for name, fault in found.items() if name not in allow_unfit]
    if refused:
        raise StoreUnfit(
            "; ".join(refused)
            + ". `duebridge doctor` says how to mend it; to run all the same, name each in"
            + " store.allow_unfit"
        )
    return [f"{name}: {fault}" for name, fault in found.items()]


def fitness_faults(connection: Connection) -> dict[str, str]:
    """Return what is wrong, by the names that `store.allow_unfit` has.

    Raises `StoreUnavailable`, also while a server that was restarted reads its data, and
    `StoreUnfit` where it tells of itself what neither Redis nor Valkey does.
    """
    with translated_errors():
        nodes = read_info(connection, "server", "memory", "persistence")
    try:
        return _faults(nodes)
    except ValueError as error:  # no number where one belongs
        raise StoreUnfit(f"expected what Redis or Valkey tells of itself; got {error}") from error


def _faults(nodes: Sequence[Info]) -> dict[str, str]:
    if any(int(node.get("loading", 0)) for node in nodes):  # till then it says it has no file
        raise StoreUnavailable("the store is still reading its data from disk; it answers after")
    checks = {
        "version": _version_fault,
        "eviction": _eviction_fault,
        "persistence": _persistence_fault,
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
