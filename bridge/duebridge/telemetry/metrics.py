"""Every metric of what this process does, named once; times in seconds, no ids in labels.

What it knows of the store is in `duebridge.worker.gauges`.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import Exemplar, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.store.replies import Leased
from duebridge.store.transitions import Ack, Burial, Decision, Release, Retry
from duebridge.telemetry.tracing import find_traceparent

LATENESS_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 3600)
CALL_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
CLAIM_BUCKETS = (1, 5, 25, 100, 250, 500, 1000)
CAUSES = ("failure", "unsure", "target")  # why an envelope is put back

delivered = Counter("duebridge_delivered", "Envelopes that a broker confirmed", ["route"])
duplicate_suspects = Counter(
    "duebridge_duplicate_suspects", "Confirmed, and maybe delivered before", ["route"]
)
retried = Counter("duebridge_retried", "Envelopes put back, by cause", ["route", "cause"])
dead = Counter("duebridge_dead", "Envelopes that ended dead, by reason", ["route", "reason"])
released = Counter("duebridge_released", "Envelopes given back without an attempt", ["route"])
reclaimed = Counter("duebridge_reclaimed", "Envelopes whose lease ran out", ["route"])
shunted = Counter("duebridge_shunted", "Dead letters that a broker confirmed", ["route"])
letters_kept = Counter(
    "duebridge_letters_kept", "Dead letters that could not be sent, at each try", ["route"]
)
leases_lost = Counter("duebridge_leases_lost", "Envelopes settled too late", ["route"])
publish_seconds = Histogram("duebridge_publish_seconds", "Time of one batch", ["broker"])
claim_size = Histogram(
    "duebridge_claim_size", "Envelopes in a claim", ["route"], buckets=CLAIM_BUCKETS
)
store_call_seconds = Histogram(
    "duebridge_store_call_seconds", "Time of one call", ["script"], buckets=CALL_BUCKETS_S
)
config_swapped = Counter("duebridge_config_swapped", "Configurations taken over while running")
config_refused = Counter("duebridge_config_refused", "Configurations refused while running")
build_info = Gauge("duebridge_build_info", "The running version", ["version"])


class Lateness(Collector):
    """A histogram from due to confirm that takes a whole batch at once.

    The client library's own costs more a message than everything else that is measured. The latest
    of a batch may be kept as its bucket's exemplar, by its trace.
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
            for each in seconds:
                counts[bisect_left(LATENESS_BUCKETS_S, each)] += 1
                self._sums[route] = self._sums.get(route, 0.0) + each

    def exemplify(self, route: str, seconds: float, trace_id: str) -> None:
        """Keep a trace that shows how one of them came about."""
        exemplar = Exemplar({"trace_id": trace_id}, seconds, time.time())
        with self._lock:
            self._exemplars[route, bisect_left(LATENESS_BUCKETS_S, seconds)] = exemplar

    def collect(self) -> Iterable[Metric]:
        """Yield the histogram; exemplars are shown to whoever asks for OpenMetrics."""
        family = HistogramMetricFamily(
            "duebridge_lateness_seconds", "From due to confirm", labels=["route"]
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


lateness = Lateness()


def begin(route: str) -> None:
    """Let the counters of a route begin at 0: of one that appears with its first event, it is lost.

    Prometheus sees a rise only between two samples.
    """
    for counter in (delivered, duplicate_suspects, released, reclaimed, shunted, letters_kept):
        counter.labels(route)
    leases_lost.labels(route)
    for cause in CAUSES:
        retried.labels(route, cause)
    for reason in Reason:
        dead.labels(route, reason.word)


def count_decisions(route: str, decisions: Sequence[Decision]) -> None:
    """Count what became of a batch."""
    acks = sum(isinstance(each, Ack) for each in decisions)
    delivered.labels(route).inc(acks)
    for each in decisions if acks < len(decisions) else ():
        if isinstance(each, Retry):
            retried.labels(route, _cause(each)).inc()
        elif isinstance(each, Burial):
            dead.labels(route, each.reason.word).inc()
        elif isinstance(each, Release):
            released.labels(route).inc()


def _cause(retry: Retry) -> str:
    failure, unsure, target = CAUSES
    return failure if retry.is_failure else unsure if retry.is_unsure else target


def count_expired(route: str, count: int) -> None:
    """Count what a claim buried, since its time was over."""
    if count:
        dead.labels(route, Reason.EXPIRED.word).inc(count)


def count_reclaimed(route: str, count: int, poisoned: int) -> None:
    """Count leases that ran out, and what of them was buried."""
    reclaimed.labels(route).inc(count)
    if poisoned:
        dead.labels(route, Reason.POISON.word).inc(poisoned)


def observe_confirmed(
    route: str, leased: Sequence[Leased], outcomes: Sequence[Outcome], now_ms: int
) -> None:
    """Count how late what was just confirmed is, and what of it may have been delivered before.

    `now_ms` is the store's clock as the answers came.
    """
    pairs = zip(leased, outcomes, strict=True)
    confirmed = [each for each, outcome in pairs if outcome.verdict is Verdict.CONFIRMED]
    if not confirmed:
        return
    late_s = [(now_ms - each.record.due_at_ms) / 1000 for each in confirmed]
    lateness.observe(route, late_s)
    trace = find_traceparent(confirmed[0].content.headers)  # the first of a claim is the latest
    if trace is not None and trace.is_sampled:
        lateness.exemplify(route, late_s[0], trace.trace_id)
    if suspects := sum(each.flight.unsure for each in confirmed):
        duplicate_suspects.labels(route).inc(suspects)


def observe_store_call(script: str, seconds: float) -> None:
    """Count how long the store took to answer, or not to."""
    store_call_seconds.labels(script).observe(seconds)
