"""Forecasts a route's due envelopes, compared with the highest rate of delivery seen.

It is what is known now: envelopes as they are scheduled, and retries at their next try, as if none
failed again. What is accepted meanwhile comes on top.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from duebridge.admin.histogram import DueBucket, Horizon, due_histogram, edges
from duebridge.admin.rates import DELIVERED, MOST_BYTES, recent

if TYPE_CHECKING:
    from duebridge.admin.operator import Operator

BUCKETS: Final[dict[Horizon, int]] = {"hour": 60, "day": 96, "week": 168}
SLOT_S = 10  # shorter, and the confirms of one batch would look like a pace
SEEN_S = 86_400


class ForecastBucket(msgspec.Struct, frozen=True):
    """What falls due from `from_ms` to before `to_ms`, and what waits at its end.

    `backlog` is at the capacity seen, None where that is unknown.
    """

    from_ms: int
    to_ms: int
    due: int
    retries: int
    backlog: int | None


class Forecast(msgspec.Struct, frozen=True):
    """A route's next hour, day or week; instants in epoch ms.

    `overdue` waits already. `capacity_per_s` is the best rate of ten seconds in the newest part of
    the journal, None if nothing was delivered there: a bridge that was never busy can do more.
    `late_ms` is the longest wait to expect at that rate, None where that is unknown; what comes in
    one burst within a bucket may wait longer, by up to the bucket.
    """

    route: str
    horizon: Horizon
    now_ms: int
    overdue: int
    buckets: tuple[ForecastBucket, ...]
    capacity_per_s: float | None
    late_ms: int | None


def forecast(operator: "Operator", route: str, horizon: Horizon) -> Forecast:
    """Forecast the deliveries of a route until the horizon.

    Raises `ConfigError` for an unknown route, `EnvelopeError` for an unknown horizon, and
    `StoreError`.
    """
    stats = [store.stats() for store in operator.stores(route)]
    now_ms, overdue = max(each.poll.now_ms for each in stats), sum(each.due for each in stats)
    ends = edges(now_ms + 1, horizon, BUCKETS.get(horizon, 1))  # what is due now is overdue
    found = due_histogram(operator, [route], ends)
    capacity = _capacity(operator, route, now_ms)
    left = [None] * len(found) if capacity is None else backlogs(overdue, found, capacity)
    buckets = [
        ForecastBucket(each.from_ms, each.to_ms, each.pending, each.retry, backlog)
        for each, backlog in zip(found, left, strict=True)
    ]
    late_ms = None if capacity is None else _late_ms(overdue, left, capacity)
    return Forecast(route, horizon, now_ms, overdue, tuple(buckets), capacity, late_ms)


def _capacity(operator: "Operator", route: str, now_ms: int) -> float | None:
    """Return the best rate of a slot; each shard's journal is read as far as all may be."""
    journals = operator.journals(route)
    slots: Counter[int] = Counter()
    for journal in journals:
        found = recent(journal, now_ms - 1000 * SEEN_S, 2 * MOST_BYTES // len(journals))
        for tally in found.tallies:
            if tally.kind in DELIVERED:
                slots[tally.at_ms // (1000 * SLOT_S)] += tally.envelopes
    return max(slots.values()) / SLOT_S if slots else None


def backlogs(overdue: int, found: Sequence[DueBucket], capacity_per_s: float) -> list[int]:
    """Return the backlog at the end of each bucket, at a given rate of delivery."""
    ends, backlog = [], float(overdue)
    for bucket in found:
        gone = capacity_per_s * (bucket.to_ms - bucket.from_ms) / 1000
        backlog = max(0.0, backlog + bucket.due - gone)
        ends.append(round(backlog))
    return ends


def _late_ms(overdue: int, left: Sequence[int | None], capacity: float) -> int:
    most = max(overdue, *(each or 0 for each in left))
    return round(1000 * most / capacity)
