"""Exports the state of shards, lanes and store as gauges; labels contain no ids.

A scrape reads the latest poll and statistics and makes no store call. What a shard holds is
exported by the one worker that has its gauge lease (`duebridge.worker.gauge_lease`), so that sums
over workers are right; how each worker sees a shard, by each: aggregate that by maximum.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import NamedTuple

from prometheus_client import disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from duebridge.store.keys import Shard
from duebridge.telemetry.metrics import build_info, lateness
from duebridge.worker.lanes.lane import Lane
from duebridge.worker.reporting.probes import oldest_due_age_ms
from duebridge.worker.reporting.status import held_longest, held_targets
from duebridge.worker.reporting.store_monitor import StoreMonitor
from duebridge.worker.shard import ShardView

STATES = ("pending", "ready", "suspect", "unack", "retry", "dead")
SHARD = ["route", "shard"]
MOST_LABEL = 200  # characters
TARGET = ["broker", "target", "role"]


class ShardGauge(NamedTuple):
    """One gauge of a shard; `read` returns None for no sample."""

    name: str
    help_text: str
    read: Callable[[ShardView], float | None]


def _oldest_due_age_s(view: ShardView) -> float | None:
    return oldest_due_age_ms(view, view.stats) / 1000 if view.stats else None


def _cold_left_s(view: ShardView) -> float | None:
    if not view.poll.has_cold:
        return None
    return (view.poll.hydrated_until_ms - view.now_ms()) / 1000


def _cold_horizon_s(view: ShardView) -> float | None:
    tier = view.route.cold_tier
    return tier.horizon / 1000 if tier else None


VIEW_GAUGES = (
    ShardGauge("duebridge_store_up", "1: the store answers and confirms", lambda view: view.is_up),
    ShardGauge(
        "duebridge_unreadable", "1: records need a newer worker", lambda view: view.is_unreadable
    ),
    # Of each worker: a page rests on it, and must not wait for another to have the gauge lease.
    ShardGauge(
        "duebridge_oldest_due_age_seconds",
        "Age of the oldest due envelope",
        _oldest_due_age_s,
    ),
)
LEASED_GAUGES = (
    ShardGauge("duebridge_due", "Envelopes due now", lambda view: view.stats and view.stats.due),
    ShardGauge(
        "duebridge_letters_rejected",
        "Dead letters that their target rejects",
        lambda view: view.stats and view.stats.rejected,
    ),
    ShardGauge(
        "duebridge_cold_left_seconds", "Time until cold envelopes may be late", _cold_left_s
    ),
    ShardGauge(
        "duebridge_cold_horizon_seconds", "Delay from which envelopes are cold", _cold_horizon_s
    ),
    ShardGauge(
        "duebridge_journal_lag_entries",
        "Journal entries not yet exported",
        lambda view: view.stats and view.stats.journal_lag,
    ),
    ShardGauge(
        "duebridge_journal_left_entries",
        "Journal entries until the cap drops unexported ones",
        lambda view: view.stats and view.stats.journal_left,
    ),
)


class ScheduledCounts:
    """Counts of due instants that never fall while this process lives, also where the store's do.

    A failover may lose writes, and Prometheus takes a counter that falls for one that began at 0.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # of two scrapes at once
        self._last: dict[Shard, int] = {}
        self._lost: Counter[Shard] = Counter()

    def of(self, view: ShardView) -> int | None:
        """Return the latest count of a shard, with what it lost; None before the first."""
        with self._lock:
            if view.stats is None:
                return None
            shard, found = view.shard, view.stats.scheduled
            self._lost[shard] += max(0, self._last.get(shard, 0) - found)
            self._last[shard] = found
            return found + self._lost[shard]


class ShardCollector(Collector):
    """Collects the gauges of a process; counters are in `duebridge.telemetry.metrics`."""

    def __init__(
        self,
        views: Callable[[], Iterable[ShardView]],
        lanes: Iterable[Lane],
        monitor: StoreMonitor | None = None,
    ) -> None:
        self._views = views
        self._lanes = list(lanes)
        self._monitor = monitor
        self._scheduled = ScheduledCounts()

    def collect(self) -> Iterable[Metric]:
        """Yield the gauge families."""
        views = [(view, _labels(view)) for view in self._views()]
        leased = [(view, labels) for view, labels in views if view.gauge_lease.is_held]
        yield from _of_shards(VIEW_GAUGES, views)
        yield from _of_shards(LEASED_GAUGES, leased)
        yield from _counts(leased)
        yield self._of_scheduled(leased)
        yield from self._of_lanes()
        yield from _held(views, self._lanes)
        yield from _of_store(self._monitor)

    def _of_scheduled(self, views: Iterable[tuple[ShardView, list[str]]]) -> Metric:
        family = CounterMetricFamily(
            "duebridge_scheduled", "Due instants given to envelopes", labels=SHARD
        )
        for view, labels in views:
            if (count := self._scheduled.of(view)) is not None:
                family.add_metric(labels, count)
        return family

    def _of_lanes(self) -> Iterable[Metric]:
        stopped = GaugeMetricFamily(
            "duebridge_lane_stopped", "1: the broker does not answer", labels=["broker"]
        )
        in_flight = GaugeMetricFamily(
            "duebridge_in_flight", "Envelopes under this worker's leases", labels=["broker"]
        )
        for lane in self._lanes:
            stopped.add_metric([lane.broker], int(not lane.is_open))
            in_flight.add_metric([lane.broker], lane.in_flight)
        yield from (stopped, in_flight)


def _of_shards(
    gauges: Iterable[ShardGauge], views: Iterable[tuple[ShardView, list[str]]]
) -> Iterable[Metric]:
    for gauge in gauges:
        family = GaugeMetricFamily(gauge.name, gauge.help_text, labels=SHARD)
        for view, labels in views:
            if (value := gauge.read(view)) is not None:
                family.add_metric(labels, value)
        yield family


def _held(views: Sequence[tuple[ShardView, list[str]]], lanes: Iterable[Lane]) -> Iterable[Metric]:
    """Yield which routes this worker holds, and the `MOST_HELD` targets that it holds longest.

    An envelope's own target that fails does not hold its route: the others flow. Nor does a target
    of a broker that does not answer: its lane is stopped, and nothing is buried.
    """
    open_brokers = {lane.broker for lane in lanes if lane.is_open}
    route = GaugeMetricFamily(
        "duebridge_held", "1: the target of the route fails, and its broker answers", labels=SHARD
    )
    target = GaugeMetricFamily("duebridge_target_held", "1: the target fails", labels=TARGET)
    since = GaugeMetricFamily(
        "duebridge_target_held_seconds", "Time since the target first failed", labels=TARGET
    )
    aside = GaugeMetricFamily(
        "duebridge_target_aside", "Envelopes set aside for the target", labels=TARGET
    )
    waiting = _aside(view for view, _ in views if view.gauge_lease.is_held)
    shards = [view for view, _ in views]
    held = [each for lane in lanes for each in held_targets(lane, shards, now_ms=0)]
    names = {name for each in held if each.broker in open_brokers for name in each.target_of}
    for view, labels in views:
        route.add_metric(labels, int(view.route.name in names))
    for each in held_longest(held):
        target_labels = [each.broker, each.target[:MOST_LABEL], each.role]
        target.add_metric(target_labels, 1)
        since.add_metric(target_labels, -each.since_ms / 1000)  # before `now_ms`, which is 0
        aside.add_metric(target_labels, waiting[each.tag])
    yield from (route, target, since, aside)


def _aside(views: Iterable[ShardView]) -> Counter[str]:
    """Return how much is set aside in shards, by the tag of its target."""
    found: Counter[str] = Counter()
    for view in views:
        found.update(view.aside.by_tag)
    return found


def _labels(view: ShardView) -> list[str]:
    return [view.route.name, str(view.store.shard.number)]


def _counts(views: Iterable[tuple[ShardView, list[str]]]) -> Iterable[Metric]:
    envelopes = GaugeMetricFamily(
        "duebridge_envelopes", "Envelopes by state", labels=[*SHARD, "state"]
    )
    within = GaugeMetricFamily(
        "duebridge_due_within", "Envelopes due now or within the window", labels=[*SHARD, "window"]
    )
    for view, labels in views:
        for state in STATES:
            envelopes.add_metric([*labels, state], getattr(view.poll, state))
        if view.stats is not None:
            within.add_metric([*labels, "60s"], view.stats.due_within_60s)
            within.add_metric([*labels, "300s"], view.stats.due_within_300s)
    yield from (envelopes, within)


def _of_store(monitor: StoreMonitor | None) -> Iterable[Metric]:
    used = GaugeMetricFamily(
        "duebridge_store_memory_used_bytes", "Memory used by the store's fullest node"
    )
    limit = GaugeMetricFamily(
        "duebridge_store_memory_limit_bytes", "Memory limit of the store's fullest node"
    )
    unfit = GaugeMetricFamily(
        "duebridge_store_unfit",
        "1: the store fails the requirement named by fault",
        labels=["fault"],
    )
    absent = GaugeMetricFamily(
        "duebridge_absent_envelopes",
        "Envelopes of routes missing from the configuration",
        labels=["route"],
    )
    snapshot = monitor.snapshot if monitor else None
    if snapshot is not None:
        used.add_metric([], snapshot.used_bytes)
        limit.add_metric([], snapshot.limit_bytes)
        for fault in snapshot.unfit:
            unfit.add_metric([fault], 1)
        for route, count in snapshot.absent.items():
            absent.add_metric([route], count)
    yield from (used, limit, unfit, absent)


def register(
    views: Callable[[], Iterable[ShardView]],
    lanes: Iterable[Lane],
    monitor: StoreMonitor | None = None,
    registry: CollectorRegistry = REGISTRY,
) -> None:
    """Register the gauges of a worker process; each scrape calls `views` for the current shards."""
    # Else a series that nobody asks for is beside each counter and histogram.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry.register(lateness)
    registry.register(ShardCollector(views, lanes, monitor))
    build_info.labels(version("duebridge")).set(1)
