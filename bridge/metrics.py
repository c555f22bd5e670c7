"""Every metric, named once, in the words of the README; times in seconds, no ids in labels."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from itertools import accumulate

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from bridge.lane import Lane
from bridge.publisher import Outcome, Verdict
from bridge.settle import Ack, Decision, Release
from bridge.station import Station
from bridge.store.delay_store import Burial, Retry
from bridge.store.replies import Leased

LATENESS_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 3600)
CLAIM_BUCKETS = (1, 5, 25, 100, 250, 500, 1000)

delivered = Counter("duebridge_delivered", "Envelopes that a broker confirmed", ["route"])
retried = Counter("duebridge_retried", "Envelopes put back, by cause", ["route", "cause"])
dead = Counter("duebridge_dead", "Envelopes that ended dead, by reason", ["route", "reason"])
released = Counter("duebridge_released", "Envelopes given back without an attempt", ["route"])
reclaimed = Counter("duebridge_reclaimed", "Envelopes whose lease ran out", ["route"])
shunted = Counter("duebridge_shunted", "Dead letters that a broker confirmed", ["route"])
leases_lost = Counter("duebridge_leases_lost", "Envelopes settled too late", ["route"])
publish_seconds = Histogram("duebridge_publish_seconds", "Time of one batch", ["broker"])
claim_size = Histogram(
    "duebridge_claim_size", "Envelopes in a claim", ["route"], buckets=CLAIM_BUCKETS
)
config_swapped = Counter("duebridge_config_swapped", "Configurations taken over while running")
config_refused = Counter("duebridge_config_refused", "Configurations refused while running")
build_info = Gauge("duebridge_build_info", "The running version", ["version"])


class Lateness(Collector):
    """A histogram from due to confirm that takes a whole batch at once.

    The client library's own costs more a message than everything else that is measured.
    """

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        self._lock = threading.Lock()

    def observe(self, route: str, seconds: Iterable[float]) -> None:
        """Count the latenesses of one batch."""
        with self._lock:
            counts = self._counts.setdefault(route, [0] * (len(LATENESS_BUCKETS_S) + 1))
            for each in seconds:
                counts[bisect_left(LATENESS_BUCKETS_S, each)] += 1
                self._sums[route] = self._sums.get(route, 0.0) + each

    def collect(self) -> Iterable[Metric]:
        """Yield the histogram."""
        family = HistogramMetricFamily(
            "duebridge_lateness_seconds", "From due to confirm", labels=["route"]
        )
        bounds = [*(str(bound) for bound in LATENESS_BUCKETS_S), "+Inf"]
        with self._lock:
            for route, counts in self._counts.items():
                buckets = list(zip(bounds, accumulate(counts), strict=True))
                family.add_metric([route], buckets, self._sums[route])
        yield family


lateness = Lateness()


def count_decisions(route: str, decisions: Sequence[Decision]) -> None:
    """Count what became of a batch."""
    acks = sum(isinstance(each, Ack) for each in decisions)
    delivered.labels(route).inc(acks)
    for each in decisions if acks < len(decisions) else ():
        if isinstance(each, Retry):
            cause = "failure" if each.is_failure else "unsure" if each.is_unsure else "target"
            retried.labels(route, cause).inc()
        elif isinstance(each, Burial):
            dead.labels(route, each.reason.word).inc()
        elif isinstance(each, Release):
            released.labels(route).inc()


def observe_lateness(
    station: Station, leased: Sequence[Leased], outcomes: Sequence[Outcome]
) -> None:
    """Count how late what was just confirmed is, by the store's clock."""
    now_ms = station.now_ms()
    pairs = zip(leased, outcomes, strict=True)
    confirmed = (each for each, outcome in pairs if outcome.verdict is Verdict.CONFIRMED)
    late_s = ((now_ms - each.record.due_at_ms) / 1000 for each in confirmed)
    lateness.observe(station.route.name, late_s)


class StationCollector(Collector):
    """Gauges read from the latest polls when asked for, so that they cost the store nothing."""

    def __init__(self, stations: Callable[[], Iterable[Station]], lanes: Iterable[Lane]) -> None:
        self._stations = stations
        self._lanes = list(lanes)

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges."""
        envelopes = GaugeMetricFamily(
            "duebridge_envelopes", "Envelopes by state", labels=["route", "shard", "state"]
        )
        held = GaugeMetricFamily("duebridge_held", "1: the target fails", labels=["route", "shard"])
        cold = GaugeMetricFamily(
            "duebridge_cold_left_seconds",
            "Until cold envelopes may be late",
            labels=["route", "shard"],
        )
        for station in self._stations():
            shard = [station.route.name, str(station.store.shard.number)]
            for state in ("pending", "ready", "suspect", "unack", "retry", "dead"):
                envelopes.add_metric([*shard, state], getattr(station.poll, state))
            held.add_metric(shard, int(station.poll.is_held and station.poll.waiting > 0))
            if station.poll.has_cold:
                left_ms = station.poll.hydrated_until_ms - station.now_ms()
                cold.add_metric(shard, left_ms / 1000)
        stopped = GaugeMetricFamily("duebridge_lane_stopped", "1: no answer", labels=["broker"])
        in_flight = GaugeMetricFamily("duebridge_in_flight", "Envelopes leased", labels=["broker"])
        for lane in self._lanes:
            stopped.add_metric([lane.broker], int(lane.is_stopped))
            in_flight.add_metric([lane.broker], lane.in_flight)
        yield from (envelopes, held, cold, stopped, in_flight)


def register(
    stations: Callable[[], Iterable[Station]],
    lanes: Iterable[Lane],
    registry: CollectorRegistry = REGISTRY,
) -> None:
    """Expose the gauges of a worker process beside the counters; it is asked for its stations."""
    registry.register(lateness)
    registry.register(StationCollector(stations, lanes))
    build_info.labels(version("duebridge")).set(1)
