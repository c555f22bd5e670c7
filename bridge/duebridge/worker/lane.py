"""The worker's path to one broker: publisher, in-flight limits and circuit breaker.

A lane stops while its broker is unreachable; a route is held (`duebridge.worker.shard`) while its
target fails.
"""

import threading
import time
from collections.abc import Callable, Sequence

import structlog

from duebridge.config.models import WorkerSettings
from duebridge.ports.publisher import BrokerUnavailable, Delivery, Outcome, Publisher, Verdict
from duebridge.telemetry import metrics

PROBE_EVERY_S = 1.0

log = structlog.get_logger()


class Lane:
    """Limits envelopes and bytes in flight to a broker; stops while the broker is unreachable."""

    def __init__(
        self,
        broker: str,
        publisher: Publisher,
        settings: WorkerSettings,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.broker = broker
        self.settings = settings
        self.is_stopped = False
        self.confirms = 0
        self._publisher = publisher
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self.in_flight = 0
        self._in_flight_bytes = 0
        self._next_probe_at = 0.0
        self._answered_from = 0.0

    def publish(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Publish a batch; return one outcome per delivery. Stops the lane on an outage."""
        if not batch:
            return ()
        started_at = self._monotonic()
        try:
            outcomes = self._publisher.publish(batch)
        except Exception as error:  # a connector bug: the fate of the batch is unknown
            log.exception("publisher_failed", broker=self.broker)
            unknown = Outcome(
                Verdict.INDETERMINATE, error_class=type(error).__name__, error_message=str(error)
            )
            outcomes = [unknown] * len(batch)
        metrics.publish_seconds.labels(self.broker).observe(self._monotonic() - started_at)
        self._judge(outcomes, started_at)
        return outcomes

    def has_answered_since(self, started_at: float) -> bool:
        """Return whether the broker confirmed a batch begun half a deadline after `started_at`.

        Earlier confirms prove nothing: the broker may have sent them just before an outage.
        """
        return self._answered_from >= started_at + self.settings.publish_deadline / 2000

    def _judge(self, outcomes: Sequence[Outcome], started_at: float) -> None:
        verdicts = {outcome.verdict for outcome in outcomes}
        confirms = sum(outcome.verdict is Verdict.CONFIRMED for outcome in outcomes)
        with self._lock:
            self.confirms += confirms
            if confirms:
                self._answered_from = max(self._answered_from, started_at)
        if Verdict.UNAVAILABLE in verdicts or verdicts == {Verdict.INDETERMINATE}:
            self._stop(outcomes[0])

    def _stop(self, outcome: Outcome) -> None:
        if not self.is_stopped:
            log.warning("lane_stopped", broker=self.broker, error=outcome.error_message)
        self._next_probe_at = self._monotonic() + PROBE_EVERY_S
        self.is_stopped = True

    def probe(self) -> None:
        """Ping the broker of a stopped lane, at most once a second; reopen the lane on success."""
        if not self.is_stopped or self._monotonic() < self._next_probe_at:
            return
        try:
            self._publisher.ping()
        except BrokerUnavailable:
            self._next_probe_at = self._monotonic() + PROBE_EVERY_S
        else:
            self.is_stopped = False
            log.info("lane_open", broker=self.broker)

    def sleep_s(self) -> float | None:
        """Return seconds until a stopped lane is probed; None if it is open."""
        return max(0.0, self._next_probe_at - self._monotonic()) if self.is_stopped else None

    def room(self) -> tuple[int, int]:
        """Return how many more envelopes and bytes may be in flight."""
        if self.is_stopped:
            return 0, 0
        count = self.settings.in_flight - self.in_flight
        size = self.settings.in_flight_bytes - self._in_flight_bytes
        return (count, size) if count > 0 and size > 0 else (0, 0)

    def take(self, count: int, size: int) -> None:
        """Count a batch as in flight."""
        with self._lock:
            self.in_flight += count
            self._in_flight_bytes += size

    def give_back(self, count: int, size: int) -> None:
        """Count a batch as settled."""
        self.take(-count, -size)

    def close(self) -> None:
        """Close the publisher; unanswered deliveries become indeterminate."""
        self._publisher.close()
