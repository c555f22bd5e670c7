"""`lateness`: due to confirm under a steady load, beside the client's publish to confirm."""

import time
from collections.abc import Iterator, Sequence
from threading import Event
from typing import NamedTuple

from duebridge.bench.figures import BenchRow, medians, percentile
from duebridge.bench.stage import Stage, bodies
from duebridge.ports.publisher import Delivery, Outcome, Publisher

SECTION = "lateness"
ALONE, BRIDGE = "client alone", "bridge"
MOST_WARM_UP_S = 1.0  # its messages are sent but not counted
LEAD_S = 0.5  # from the last envelope scheduled to the first due
SCHEDULE_S_EACH = 0.0002  # upper bound for scheduling one envelope
CONFIRMED_WITHIN_S = 30.0
DUE_AT = "x-due-at"


class TimedBatch(NamedTuple):
    """A published batch by this machine's clock; confirmed with its slowest delivery."""

    handed_ms: float
    confirmed_ms: float
    due_ms: list[int]


class TimedPublisher:
    """Notes when a publisher was handed each delivery, and when it was confirmed.

    Implements `duebridge.ports.publisher.Publisher`.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._batches: list[TimedBatch] = []

    def publish(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Publish, noting the time before and after."""
        handed_at = time.time()
        outcomes = self._publisher.publish(batch)
        confirmed_at = time.time()
        due_ms = [int(str(dict(delivery.headers)[DUE_AT])) for delivery in batch]
        self._batches.append(TimedBatch(handed_at * 1000, confirmed_at * 1000, due_ms))
        return outcomes

    def ping(self) -> None:
        """Ask the publisher's broker; see `Publisher.ping`."""
        self._publisher.ping()

    def close(self) -> None:
        """Close the publisher."""
        self._publisher.close()

    def late_ms(self, offset_ms: float, from_ms: int) -> list[float]:
        """Return due to confirm of deliveries due from `from_ms`; `offset_ms` is the store's."""
        return [
            batch.confirmed_ms + offset_ms - due_ms
            for batch in self._batches
            for due_ms in batch.due_ms
            if due_ms >= from_ms
        ]

    def early(self, offset_ms: float) -> int:
        """Count the deliveries that were handed over before they were due."""
        return sum(
            batch.handed_ms + offset_ms < due_ms
            for batch in self._batches
            for due_ms in batch.due_ms
        )


def measure_lateness(
    stage: Stage, per_second: int, seconds: float, rounds: int
) -> Iterator[BenchRow]:
    """Yield the rows of both sides, alternating by round, then their medians."""
    rows: list[BenchRow] = []
    for number in range(1, rounds + 1):
        namespace = stage.namespace()
        sides = (
            (ALONE, steady_alone(stage, per_second, seconds)),
            (BRIDGE, steady_bridge(stage, namespace, per_second, seconds)),
        )
        stage.delete(namespace)
        for what, figures in sides:
            rows.append(BenchRow(SECTION, f"{what}, {per_second}/s", figures, stage.broker, number))
            yield rows[-1]
    yield from medians(rows)


def steady_alone(stage: Stage, per_second: int, seconds: float) -> dict[str, float]:
    """Publish at a steady rate with the client alone."""
    warm_up = _warm_up(per_second, seconds)
    contents = bodies(warm_up + int(per_second * seconds))
    waits_s: list[float] = []
    all_confirmed = Event()

    def publish(body: bytes) -> None:
        started_at = time.perf_counter()

        def confirmed() -> None:
            waits_s.append(time.perf_counter() - started_at)
            if len(waits_s) == len(contents):
                all_confirmed.set()

        stage.baseline.publish(body, confirmed)

    stage.baseline.empty()
    before, first_at = stage.meter.read(), time.perf_counter() + 0.01
    for place, body in enumerate(contents):
        time.sleep(max(0.0, first_at + place / per_second - time.perf_counter()))
        publish(body)
    all_confirmed.wait(CONFIRMED_WITHIN_S)
    spent = stage.meter.read().since(before)
    return _figures([wait_s * 1000 for wait_s in waits_s[warm_up:]]) | {
        "worker_cpu_us": spent.worker_cpu_s * 1e6 / len(contents)
    }


def steady_bridge(
    stage: Stage, namespace: str, per_second: int, seconds: float
) -> dict[str, float]:
    """Schedule envelopes that are due at a steady rate, and deliver them.

    `early` counts deliveries handed to the broker's client before they were due by the store's
    clock, as accurately as its offset is known here.
    """
    warm_up = _warm_up(per_second, seconds)
    count = warm_up + int(per_second * seconds)
    timed: list[TimedPublisher] = []

    def wrap(publisher: Publisher) -> Publisher:
        timed.append(TimedPublisher(publisher))
        return timed[-1]

    stage.baseline.empty()
    with stage.running(namespace, wrap) as running:
        first_ms = stage.now_ms(namespace) + (LEAD_S + count * SCHEDULE_S_EACH) * 1000
        due_ms = [int(first_ms + place * 1000 / per_second) for place in range(count)]
        stage.schedule(namespace, bodies(count), due_ms)
        running.start()
        time.sleep(max(0.0, (first_ms - stage.now_ms(namespace)) / 1000 - LEAD_S / 2))
        before = stage.meter.read()
        running.wait_settled(count)
        spent = stage.meter.read().since(before)
    offset_ms, doubt_ms = stage.meter.clock_offset_ms()
    counted_from_ms = due_ms[warm_up]
    late_ms = timed[0].late_ms(offset_ms, counted_from_ms)
    early = {"early": float(timed[0].early(offset_ms + doubt_ms))}
    return _figures(late_ms) | early | spent.figures(count)


def _warm_up(per_second: int, seconds: float) -> int:
    return int(per_second * min(MOST_WARM_UP_S, seconds))


def _figures(waits_ms: Sequence[float]) -> dict[str, float]:
    ordered = sorted(waits_ms)
    return {"p50_ms": percentile(ordered, 0.5), "p99_ms": percentile(ordered, 0.99)}
