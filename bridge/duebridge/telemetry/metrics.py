"""The counters and histograms of this process; times in seconds, no ids in labels.

`duebridge.worker.reporting.gauges` exports the gauges of the store.
"""

import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import Exemplar, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.store.wire.leases import LeasedEnvelope
from duebridge.store.wire.transitions import Burial, Decision, Release, Retry, SetAside
from duebridge.telemetry.traceparent import find_traceparent

LATENESS_BUCKETS_S = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
    *(7.5, 10, 15, 20, 30, 45, 60, 120, 300, 900, 3600),  # a quantile is no finer than these
)
CALL_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
CLAIM_BUCKETS = (1, 5, 25, 100, 250, 500, 1000)
INTAKE_REASONS = (
    Reason.INVALID,
    Reason.UNROUTABLE,
    Reason.TOO_LARGE,
    Reason.ATTEMPTS_EXHAUSTED,
)
CAUSES = ("failure", "unsure", "target")  # why an envelope is retried

delivered = Counter("duebridge_delivered", "Envelopes confirmed by a broker", ["route"])
duplicate_suspects = Counter(
    "duebridge_duplicate_suspects", "Confirmed envelopes that may be duplicates", ["route"]
)
retried = Counter("duebridge_retried", "Retries of envelopes, by cause", ["route", "cause"])
dead = Counter("duebridge_dead", "Envelopes that became dead, by reason", ["route", "reason"])
released = Counter("duebridge_released", "Envelopes released without an attempt", ["route"])
reclaimed = Counter("duebridge_reclaimed", "Envelopes whose lease expired", ["route"])
shunted = Counter("duebridge_shunted", "Dead letters confirmed by a broker", ["route"])
letters_kept = Counter(
    "duebridge_letters_kept",
    "Failed attempts to publish a dead letter, which the store keeps",
    ["route"],
)
leases_lost = Counter(
    "duebridge_leases_lost", "Envelopes settled after their lease expired", ["route"]
)
publish_seconds = Histogram("duebridge_publish_seconds", "Time to publish one batch", ["broker"])
claim_size = Histogram(
    "duebridge_claim_size", "Envelopes per claim", ["route"], buckets=CLAIM_BUCKETS
)
store_call_seconds = Histogram(
    "duebridge_store_call_seconds", "Time of one store call", ["script"], buckets=CALL_BUCKETS_S
)
intake_received = Counter(
    "duebridge_intake_received", "Messages that an intake took from its broker", ["intake"]
)
intake_accepted = Counter(
    "duebridge_intake_accepted", "Messages of an intake that the store accepted", ["intake"]
)
intake_duplicates = Counter(
    "duebridge_intake_duplicates",
    "Messages of an intake already stored or delivered",
    ["intake"],
)
intake_cancelled = Counter(
    "duebridge_intake_cancelled", "Envelopes that messages of an intake cancelled", ["intake"]
)
intake_refused = Counter(
    "duebridge_intake_refused", "Messages that an intake dead-lettered", ["intake", "reason"]
)
intake_letters_kept = Counter(
    "duebridge_intake_letters_kept", "Refused messages that the store keeps", ["intake"]
)
intake_without_id = Counter(
    "duebridge_intake_without_id",
    "Messages without a stable id: a redelivery is stored twice",
    ["intake"],
)
intake_lag = Gauge("duebridge_intake_lag", "Messages that wait at the broker", ["intake"])
intake_up = Gauge("duebridge_intake_up", "1: this process reads the intake's source", ["intake"])
intake_waiting_seconds = Gauge(
    "duebridge_intake_waiting_seconds", "How long an intake's batch in hand has waited", ["intake"]
)
http_requests = Counter(
    "duebridge_http_requests", "Requests over HTTP, by their answer", ["method", "path", "status"]
)
config_swapped = Counter("duebridge_config_swapped", "Configurations applied while running")
config_refused = Counter("duebridge_config_refused", "Configurations refused while running")
build_info = Gauge("duebridge_build_info", "The running version", ["version"])


class LatenessHistogram(Collector):
    """A histogram of the time from due to confirm that observes a whole batch at once.

    The client library's histogram costs more per message than all other metrics together. The
    trace of a batch's latest envelope may become the exemplar of its bucket.
    """

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        self._exemplars: dict[tuple[str, int], Exemplar] = {}
        self._lock = threading.Lock()

    def observe(self, route: str, seconds: Iterable[float]) -> None:
        """Count the latenesses of one batch."""
        with self._lock:
            counts = self._counts.setdefault(route, [0] * (len(LATENESS_BUCKETS_S) + 1))
            for late_s in seconds:
                counts[bisect_left(LATENESS_BUCKETS_S, late_s)] += 1
                self._sums[route] = self._sums.get(route, 0.0) + late_s

    def exemplify(self, route: str, seconds: float, trace_id: str) -> None:
        """Keep a trace as the exemplar of a lateness."""
        exemplar = Exemplar({"trace_id": trace_id}, seconds, time.time())
        with self._lock:
            self._exemplars[route, bisect_left(LATENESS_BUCKETS_S, seconds)] = exemplar

    def collect(self) -> Iterable[Metric]:
        """Yield the histogram; exemplars appear only in the OpenMetrics format."""
        family = HistogramMetricFamily(
            "duebridge_lateness_seconds", "Time from due to broker confirm", labels=["route"]
        )
        with self._lock:
            for route in self._counts:
                family.add_metric([route], self._buckets(route), self._sums.get(route, 0.0))
        yield family

    def _buckets(self, route: str) -> list[tuple[str, float, Exemplar]]:
        bounds = [*map(floatToGoString, LATENESS_BUCKETS_S), "+Inf"]
        return [
            (bound, count, self._exemplars.get((route, place)))  # type: ignore[misc]  # None: none
            for place, (bound, count) in enumerate(
                zip(bounds, accumulate(self._counts[route]), strict=True)
            )
        ]


lateness = LatenessHistogram()


def begin(route: str) -> None:
    """Start the counters of a route at 0.

    Prometheus sees an increase only between two samples: a counter that appears with its first
    event loses that event.
    """
    for counter in (delivered, duplicate_suspects, released, reclaimed, shunted, letters_kept):
        counter.labels(route)
    leases_lost.labels(route)
    for cause in CAUSES:
        retried.labels(route, cause)
    for reason in Reason:
        dead.labels(route, reason.word)


def begin_intake(
    intake: str,
    lag: Callable[[], int | None],
    is_up: Callable[[], bool],
    waiting_s: Callable[[], float],
) -> None:
    """Start the counters of an intake at 0, and read its gauges from these functions."""
    for counter in (
        intake_received,
        intake_accepted,
        intake_duplicates,
        intake_cancelled,
        intake_letters_kept,
        intake_without_id,
    ):
        counter.labels(intake)
    for reason in INTAKE_REASONS:
        intake_refused.labels(intake, reason.word)
    intake_lag.labels(intake).set_function(lambda: _or_nan(lag()))
    intake_up.labels(intake).set_function(lambda: float(is_up()))
    intake_waiting_seconds.labels(intake).set_function(waiting_s)


def _or_nan(value: int | None) -> float:
    return math.nan if value is None else float(value)


def count_decisions(route: str, decisions: Sequence[Decision]) -> None:
    """Count what the store did with the envelopes of a batch that no broker confirmed."""
    for decision in decisions:
        if isinstance(decision, Retry):
            retried.labels(route, _cause(decision)).inc()
        elif isinstance(decision, Burial):
            dead.labels(route, decision.reason.word).inc()
        elif isinstance(decision, SetAside):
            retried.labels(route, CAUSES[-1]).inc()
        elif isinstance(decision, Release):
            released.labels(route).inc()


def _cause(retry: Retry) -> str:
    failure, unsure, target = CAUSES
    return failure if retry.is_failure else unsure if retry.is_unsure else target


def count_expired(route: str, count: int) -> None:
    """Count envelopes that a claim buried because they had expired."""
    if count:
        dead.labels(route, Reason.EXPIRED.word).inc(count)


def count_reclaimed(route: str, count: int, poisoned: int) -> None:
    """Count expired leases, and those of them that buried the envelope."""
    reclaimed.labels(route).inc(count)
    if poisoned:
        dead.labels(route, Reason.POISON.word).inc(poisoned)


def observe_confirmed(
    route: str, leased: Sequence[LeasedEnvelope], outcomes: Sequence[Outcome], now_ms: int
) -> None:
    """Count confirmed envelopes, observe their lateness, and count those that may be duplicates.

    `now_ms` is the store's clock when the answers arrived.
    """
    pairs = zip(leased, outcomes, strict=True)
    confirmed = [envelope for envelope, outcome in pairs if outcome.verdict is Verdict.CONFIRMED]
    if not confirmed:
        return
    delivered.labels(route).inc(len(confirmed))
    late_s = [(now_ms - envelope.record.due_at_ms) / 1000 for envelope in confirmed]
    lateness.observe(route, late_s)
    trace = find_traceparent(confirmed[0].content.headers)  # the first of a claim is the latest
    if trace is not None and trace.is_sampled:
        lateness.exemplify(route, late_s[0], trace.trace_id)
    if suspects := sum(envelope.flight.unsure for envelope in confirmed):
        duplicate_suspects.labels(route).inc(suspects)


def observe_store_call(script: str, seconds: float) -> None:
    """Observe the time of a store call, successful or not."""
    store_call_seconds.labels(script).observe(seconds)
