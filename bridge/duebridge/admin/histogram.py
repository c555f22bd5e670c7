"""Counts the envelopes that fall due in each bucket of time, over routes and their shards.

Only the indexes are asked, so a million envelopes cost as little as one.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from duebridge.errors import EnvelopeError
from duebridge.store.delay_store import MOST_EDGES

if TYPE_CHECKING:
    from duebridge.admin.operator import Operator

Horizon: TypeAlias = Literal["hour", "day", "week"]

HORIZON_MS: Final[dict[Horizon, int]] = {
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}


class DueBucket(msgspec.Struct, frozen=True):
    """What falls due from `from_ms` to before `to_ms`: pending by its due, retry by its try."""

    from_ms: int
    to_ms: int
    pending: int
    retry: int

    @property
    def due(self) -> int:
        """The number of deliveries that begin in it."""
        return self.pending + self.retry


def edges(now_ms: int, horizon: Horizon, count: int) -> list[int]:
    """Return the edges of `count` buckets of one length, from now to the horizon.

    Raises `EnvelopeError` for an unknown horizon, and for more buckets than a call counts.
    """
    if horizon not in HORIZON_MS:
        raise EnvelopeError(f"horizon: expected one of {', '.join(HORIZON_MS)}; got {horizon!r}")
    if not 1 <= count < MOST_EDGES:
        raise EnvelopeError(f"count: expected between 1 and {MOST_EDGES - 1}; got {count}")
    return [now_ms + HORIZON_MS[horizon] * n // count for n in range(count + 1)]


def due_histogram(
    operator: "Operator", routes: Sequence[str], edges_ms: Sequence[int]
) -> list[DueBucket]:
    """Return the buckets between the edges, summed over the routes; each shard is asked once.

    Raises `EnvelopeError` for edges that do not rise, or more than a call counts, `ConfigError` for
    an unknown route, and `StoreError`.
    """
    _check(edges_ms)
    found = [store.histogram(edges_ms) for route in routes for store in operator.stores(route)]
    return [
        DueBucket(
            from_ms,
            to_ms,
            sum(reply.pending[n] for reply in found),
            sum(reply.retry[n] for reply in found),
        )
        for n, (from_ms, to_ms) in enumerate(pairwise(edges_ms))
    ]


def _check(edges_ms: Sequence[int]) -> None:
    if not 2 <= len(edges_ms) <= MOST_EDGES:
        raise EnvelopeError(f"edges_ms: expected 2 to {MOST_EDGES} instants; got {len(edges_ms)}")
    if any(low >= high for low, high in pairwise(edges_ms)):
        raise EnvelopeError("edges_ms: expected instants that rise; got others")
