"""Checks the store: whether it is fit, knows the routes, and has clock, memory and replicas."""

from collections.abc import Iterator

from duebridge.config.models import Config
from duebridge.durations import format_ms
from duebridge.errors import StoreError, StoreUnavailable, StoreUnfit
from duebridge.ports.checks import Finding, FindingSubject, failure, ok, warning
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Connection
from duebridge.store.server.fitness import (
    HAS_HIREDIS,
    INDISPENSABLE,
    Vitals,
    fitness_faults,
    missing_replicas,
    read_vitals,
    silent_nodes,
)
from duebridge.store.wire.record import NEWEST_LAYOUT

CLOCK_MS = 1_000
FULL_PERCENT = 80

_UNFIT_REMEDIES = {
    "version": "use a newer server",
    "eviction": "set maxmemory-policy noeviction in the server's configuration file",
    "persistence": "set appendonly yes in the server's configuration file",
    "fsync": "set appendonly yes and appendfsync always, and let the store's user run CONFIG GET",
    "replicas": "let replicated.replicas name all replicas",
}


def check_fit(config: Config, connection: Connection) -> Iterator[Finding]:
    """Yield whether the server is fit to hold envelopes, as `run` and `send` require."""
    faults = fitness_faults(connection, config.needs)
    for name, fault in faults.items():
        if name in config.store.allow_unfit:
            yield warning(
                FindingSubject.STORE, "store", fault, f"{_UNFIT_REMEDIES[name]}: it is allowed"
            )
        else:
            offer = f", or allow it: store.allow_unfit: [{name}]" * (name not in INDISPENSABLE)
            yield failure(FindingSubject.STORE, "store", fault, _UNFIT_REMEDIES[name] + offer)
    away = silent_nodes(connection)
    for node in away:
        text = f"node {node} does not answer: its shards are away, and whether it is fit is unknown"
        yield failure(FindingSubject.STORE, "store", text, "start it, or promote its replica")
    if not (faults or away):
        yield ok(
            FindingSubject.STORE,
            "store",
            "is reachable, has a known version, persists, and evicts nothing",
        )


def check_registered(config: Config, connection: Connection) -> Iterator[Finding]:
    """Yield the registered routes that this configuration cannot open."""
    for name, found in Registry(connection, config.store.namespace).routes().items():
        place = f"routes.{name}"
        if found.layout > NEWEST_LAYOUT:
            known = f"this duebridge knows {NEWEST_LAYOUT} or older"
            text = f"its records have layout {found.layout}; {known}"
            yield failure(FindingSubject.STORE, place, text, "upgrade duebridge")
        route = config.routes.get(name)
        if route is not None and route.shards != found.shards:
            text = f"expected shards: {found.shards}, as the store has it; got {route.shards}"
            remedy = "set it back; to change it, make a new route and drain this one"
            yield failure(FindingSubject.STORE, f"{place}.shards", text, remedy)


def check_vitals(config: Config, connection: Connection) -> Iterator[Finding]:
    """Yield the state of clock, memory, disk and replicas, and whether hiredis is installed."""
    yield from vital_findings(read_vitals(connection))
    yield from check_replicas(config, connection)
    if not HAS_HIREDIS:
        text = "the Python package hiredis is missing: replies are read more slowly"
        yield warning(FindingSubject.CONFIG, "store", text, "type: pip install hiredis")


def vital_findings(vitals: Vitals) -> Iterator[Finding]:
    """Yield the findings of these vitals."""
    if not vitals.is_primary:
        text = "the server is a replica, which takes no writes"
        yield failure(FindingSubject.STORE, "store.url", text, "name its primary")
    if not vitals.is_append_only_written:
        text = "the server could not write its append-only file"
        yield failure(
            FindingSubject.STORE, "store", text, "see its log; most often its disk is full"
        )
    yield _clock(vitals.clock_ahead_ms)
    yield _memory(vitals)


def check_replicas(config: Config, connection: Connection) -> Iterator[Finding]:
    """Yield whether fewer replicas are connected than a durability waits for."""
    if text := missing_replicas(connection, config.needs):
        remedy = "start the others: until then calls are indeterminate, and nothing is delivered"
        yield failure(FindingSubject.STORE, "store", text, remedy)


def _clock(ahead_ms: int) -> Finding:
    side = "ahead of" if ahead_ms > 0 else "behind"
    text = f"the store's clock is {format_ms(abs(ahead_ms))} {side} this machine's"
    if abs(ahead_ms) <= CLOCK_MS:
        return ok(FindingSubject.STORE, "store", text)
    remedy = (
        "synchronise both: the store's clock decides what is due; this machine's clock computed the"
        " instants you pass"
    )
    return warning(FindingSubject.STORE, "store", text, remedy)


def _memory(vitals: Vitals) -> Finding:
    limit = "maxmemory" if vitals.is_limit_set else "the memory of its machine"
    percent = 100 * vitals.used_bytes // max(1, vitals.limit_bytes)
    text = f"{vitals.server} uses {vitals.used_bytes / 2**20:.1f} MiB, {percent} % of {limit}"
    remedy = "give it more memory, or schedule less far ahead"
    if percent >= 100:
        return failure(FindingSubject.STORE, "store", f"{text}: it refuses new envelopes", remedy)
    if percent >= FULL_PERCENT:
        return warning(
            FindingSubject.STORE, "store", f"{text}: when it is full, it refuses more", remedy
        )
    return ok(FindingSubject.STORE, "store", text)


def store_failure(error: StoreError) -> Finding:
    """Return the finding for an error of the store."""
    remedy = "see the server's log"
    if isinstance(error, StoreUnavailable):
        remedy = "start the server, or fix store.url"
    elif isinstance(error, StoreUnfit):
        remedy = "fix store.url: expected Redis or Valkey, its user and password, with all rights"
    return failure(FindingSubject.STORE, "store.url", str(error), remedy)
