"""Checks the routes in the store: absent, held, late or cold ones, and the workers of each."""

from collections.abc import Iterator, Sequence

from duebridge.admin.held import HeldStats, StoppedLane, count_serving, stopped_lanes
from duebridge.admin.operator import Operator
from duebridge.admin.route_stats import RouteStats
from duebridge.config.models import Config
from duebridge.durations import format_instant, format_ms
from duebridge.errors import StoreError, StoreUnavailable
from duebridge.ports.checks import Finding, FindingSubject, failure, ok, warning
from duebridge.store.keys import Shard
from duebridge.store.server.connection import Connection
from duebridge.store.server.fitness import count_listeners
from duebridge.store.workers import KEPT_MS, WorkerRecord

SHARD_PENDING = 1_000_000  # the intended size of a shard
CLUSTER_SHARD_PENDING = 100_000  # on a Cluster: a shard stands still while its slot migrates
UNHEARD_MS = 5_000  # the time a starting worker may take


def check_absent(config: Config, connection: Connection) -> Iterator[Finding]:
    """Yield the routes that hold envelopes and that this configuration would abandon."""
    for route in Operator(config, connection).stats():
        yield from _absent(config, f"routes.{route.route}", route)


def check_routes(config: Config, connection: Connection) -> Iterator[Finding]:
    """Yield findings about what hinders the stored envelopes."""
    operator = Operator(config, connection)
    routes = operator.stats()
    records = operator.workers()
    listeners = _listeners(config, connection, routes, records)
    most = CLUSTER_SHARD_PENDING if connection.is_cluster else SHARD_PENDING
    for route, count in zip(routes, listeners, strict=True):
        reporting = None if records is None else count_serving(records, route.route)
        yield from route_findings(config, route, count, most, reporting)


def check_workers(config: Config, connection: Connection) -> Iterator[Finding]:
    """Yield the brokers that a worker does not reach, with the error that it met."""
    records = Operator(config, connection).workers()
    if records is None:
        text = "the store's user may not read what the workers say of themselves"
        remedy = "give it the rights of docs/security.md, to see failing targets and stopped lanes"
        yield warning(FindingSubject.STORE, "store.url", text, remedy)
    yield from map(lane_finding, stopped_lanes(records or ()))


def lane_finding(lane: StoppedLane) -> Finding:
    """Return the finding of a stopped lane."""
    text = f"worker {lane.host} (pid {lane.pid}) does not reach it: {lane.error}"
    remedy = "fix the broker, or that worker's settings; the worker retries every second"
    return failure(FindingSubject.BROKER, f"brokers.{lane.broker}", text, remedy)


def route_findings(
    config: Config,
    route: RouteStats,
    listeners: int | None,
    most: int = SHARD_PENDING,
    reporting: int | None = None,
) -> list[Finding]:
    """Return the findings of a route's figures; `listeners` is None if unknown.

    `most` is what a shard is meant for; `reporting` the number of workers whose records name the
    route, None if unknown.
    """
    place = f"routes.{route.route}"
    faults = [*_absent(config, place, route), *_faults(config, place, route)]
    faults += _large(place, route, most)
    if route.configured:
        faults += [*_late(place, route, listeners), *_cold(config, place, route)]
        faults += _frozen(place, listeners, reporting)
    heard = "not told" if listeners is None else str(listeners)
    text = f"waiting: {route.waiting}, dead: {route.dead}, workers that listen: {heard}"
    return faults or [ok(FindingSubject.ROUTE, place, text)]


def _listeners(
    config: Config,
    connection: Connection,
    routes: Sequence[RouteStats],
    records: Sequence[WorkerRecord] | None,
) -> Sequence[int | None]:
    """Return the number of workers that listen to each route; None without the right to ask.

    Older workers listen, but do not say so.
    """
    shards = [Shard(config.store.namespace, route.route, 0) for route in routes]
    try:
        return count_listeners(connection, shards)
    except StoreUnavailable:
        raise
    except StoreError:  # the store's user may have no right to ask
        if not records:
            return [None] * len(routes)
        return [count_serving(records, route.route) for route in routes]


def _absent(config: Config, place: str, route: RouteStats) -> Iterator[Finding]:
    count, may_be_cold = route.waiting + route.dead, route.cold_left_ms is not None
    if route.configured or not (count or may_be_cold):  # an empty route harms nobody
        return
    cold = "; some may be in its cold tier" if may_be_cold else ""
    found = f"in the store, not in the configuration (envelopes: {count}{cold})"
    if route.route in config.allow_absent:
        yield warning(FindingSubject.ROUTE, place, f"{found}, as allow_absent says", "")
        return
    remedy = (
        "put it back, or nobody delivers them; or name it in allow_absent; if another release"
        " serves it, both share store.namespace: give each its own"
    )
    yield failure(FindingSubject.ROUTE, place, found, remedy)


def _large(place: str, route: RouteStats, most: int) -> Iterator[Finding]:
    if route.pending > most * route.shards:  # ids spread evenly over the shards
        text = f"{route.pending} are pending in {route.shards} shards, meant for {most:,} each"
        remedy = "make a new route with more shards, send there, and drain this one"
        yield warning(FindingSubject.ROUTE, f"{place}.shards", text, remedy)


def _faults(config: Config, place: str, route: RouteStats) -> Iterator[Finding]:
    yield from (_held(place, each) for each in route.held)
    yield from _rejected(place, route)
    yield from _suspects(place, route)
    named = config.routes.get(route.route)
    if route.dead and (named is None or named.dead_letter is None):
        text = f"dead envelopes: {route.dead}, and the route has no dead-letter target"
        remedy = (
            f"see `duebridge dead ls {route.route}`; configure a dead_letter target for future ones"
        )
        yield warning(FindingSubject.ROUTE, place, text, remedy)


def _rejected(place: str, route: RouteStats) -> Iterator[Finding]:
    if route.rejected:
        text = f"{route.rejected} dead letters are kept: their target rejects them"
        name = route.route
        remedy = f"see `duebridge dead ls {name}`; make the target accept them, then run "
        yield warning(FindingSubject.ROUTE, place, text, f"{remedy}`duebridge dead shunt {name}`")


def _suspects(place: str, route: RouteStats) -> Iterator[Finding]:
    if route.suspects:
        text = f"suspects: {route.suspects}; their leases ran out twice, so one may kill workers"
        remedy = f"see `duebridge ls {route.route} --state suspect`, and docs/runbooks/suspects.md"
        yield warning(FindingSubject.ROUTE, place, text, remedy)


def _held(place: str, held: HeldStats) -> Finding:
    what = "dead-letter target" if held.dead_letter else "target"
    since = f"since {format_instant(held.since_ms)}"
    text = f"it is held {since}: the {what} {held.target} fails: {held.error}"
    if not held.waiting:
        return warning(
            FindingSubject.ROUTE, place, text, "nothing waits; the next delivery will tell"
        )
    remedy = "see the broker: nothing is buried meanwhile, and delivery resumes by itself"
    if held.at_fault:
        remedy = "create or bind it, or grant the right to it; delivery then resumes by itself"
    return failure(FindingSubject.ROUTE, place, f"{text} (waiting: {held.waiting})", remedy)


def _cold(config: Config, place: str, route: RouteStats) -> Iterator[Finding]:
    left_ms, tier = route.cold_left_ms, config.routes[route.route].cold_tier
    if left_ms is None:
        return
    run = f"run: duebridge spark hydrate {route.route}"
    if tier is None:
        text = "it has no cold_tier, and some of its envelopes may be cold"
        yield failure(FindingSubject.ROUTE, f"{place}.cold_tier", text, f"put it back, and {run}")
    elif left_ms <= 0:
        text = f"envelopes due in the last {format_ms(-left_ms)} may be cold, and late"
        yield failure(FindingSubject.ROUTE, f"{place}.cold_tier", text, run)
    elif left_ms < tier.horizon // 2:
        text = f"envelopes due after {format_ms(left_ms)} may be cold: a run of hydrate is missing"
        yield failure(FindingSubject.ROUTE, f"{place}.cold_tier", text, run)


def _frozen(place: str, listeners: int | None, reporting: int | None) -> Iterator[Finding]:
    """Yield a finding if more workers listen than say how they are: a frozen one only listens."""
    if listeners is None or reporting is None or listeners <= reporting:
        return
    known = str(reporting) if reporting else "none"
    text = (
        f"workers that listen: {listeners}, and {known} of them reported"
        f" in the last {format_ms(KEPT_MS)}: is one frozen?"
    )
    remedy = (
        "find the process that `duebridge top` lacks, and restart it; one that has just started,"
        " is of 0.2.0, or may not write its record, does not report either"
    )
    yield warning(FindingSubject.ROUTE, place, text, remedy)


def _late(place: str, route: RouteStats, listeners: int | None) -> Iterator[Finding]:
    age_ms = route.oldest_due_age_ms
    text = f"the oldest envelope has been due for {format_ms(age_ms - age_ms % 1000)}"
    if listeners == 0 and age_ms > UNHEARD_MS:
        found = f"{text}, and no worker serves this route"
        yield failure(FindingSubject.ROUTE, place, found, "start one: duebridge run")
    elif route.is_late:
        remedy = "see the workers' logs and the findings about the broker; or start more workers"
        yield warning(FindingSubject.ROUTE, place, text, remedy)
    elif listeners == 0 and route.pending + route.ready + route.retry:
        found = "envelopes wait, and no worker serves this route"
        yield warning(
            FindingSubject.ROUTE, place, found, "start one before they are due: duebridge run"
        )
