"""Divides what is read of the store among tasks, whatever the number of shards.

A task reads spans: parts of the order of one state of one shard. The spans of a state join without
a gap, whatever changes later, so a cut that is out of date costs balance, and no row.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

from pyspark.sql.datasource import InputPartition

from duebridge.store.calls.reading_calls import Split
from duebridge.store.keys import Shard
from duebridge.store.wire.poll import NONE

SLICE_ROWS = 50_000
Cut: TypeAlias = "tuple[str, int] | None"  # id and score of a row; None is an end of the state


class RowSpan(NamedTuple):
    """The rows of a state behind one row, up to another."""

    shard: Shard
    state: str
    after: Cut = None
    until: Cut = None

    def count_in_page(self, ids: Sequence[str], scores_ms: Sequence[int]) -> int:
        """Return how many rows of a page belong to it; a page begins behind `after` or later."""
        if self.until is None:
            return len(ids)
        places = range(len(ids))
        return bisect_right(
            places, _order(self.until), key=lambda at: _order((ids[at], scores_ms[at]))
        )

    def ends_with(self, name: str, score_ms: int) -> bool:
        """Whether all that follows a row is beyond the span."""
        return self.until is not None and _order((name, score_ms)) >= _order(self.until)


@dataclass(frozen=True)
class StoreSlice(InputPartition):
    """The spans of one task."""

    spans: tuple[RowSpan, ...]


class ShardState(NamedTuple):
    """One state of one shard, and how many envelopes it had at planning."""

    shard: Shard
    state: str
    rows: int


Splitter: TypeAlias = Callable[[Shard, str, int], Split]  # into parts of at most so many rows


def divide(
    places: Sequence[ShardState], split: Splitter, least: int, most: int | None
) -> list[StoreSlice]:
    """Return `least` slices or more, if there are rows enough, but never more than `most`."""
    rows = sum(place.rows for place in places)
    size = max(1, min(SLICE_ROWS, -(-rows // least)))
    slices = list(_slices(places, split, size))
    return slices if most is None or len(slices) <= most else _merged(slices, most)


def _slices(places: Sequence[ShardState], split: Splitter, size: int) -> Iterator[StoreSlice]:
    for shard, of_shard in groupby(places, lambda place: place.shard):
        small: list[RowSpan] = []
        together = 0
        for _, state, rows in of_shard:
            if rows > size:
                yield from _parts(shard, state, split(shard, state, size))
                continue
            if small and together + rows > size:
                yield StoreSlice(tuple(small))
                small, together = [], 0
            small.append(RowSpan(shard, state))
            together += rows
        if small:
            yield StoreSlice(tuple(small))


def _parts(shard: Shard, state: str, found: Split) -> Iterator[StoreSlice]:
    ends: list[Cut] = [None, *found.cuts, None]
    for after, until in pairwise(ends):
        yield StoreSlice((RowSpan(shard, state, after, until),))


def _merged(slices: Sequence[StoreSlice], most: int) -> list[StoreSlice]:
    """Return so many slices; a task reads its spans one after another."""
    shares = (slices[number::most] for number in range(most))
    return [StoreSlice(tuple(span for each in share for span in each.spans)) for share in shares]


def _order(row: tuple[str, int]) -> tuple[float, bytes]:
    """Return the key by which the store orders the rows of a state."""
    name, score_ms = row
    return float("inf") if score_ms == NONE else score_ms, name.encode(errors="surrogateescape")
