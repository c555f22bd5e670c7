"""Filters of a query that the source applies itself: what they exclude is not read.

Spark offers filters only where `spark.sql.python.filterPushdown.enabled` is set, and refuses a
reader that would take them elsewhere. All of them are offered; those returned, Spark applies too.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from duebridge.store.due_window import DueWindow
from duebridge.store.keys import Shard

_PROCESS = "pyspark.sql.worker.data_source_pushdown_filters"
_NEVER_NULL = {"id", "route", "shard", "state"}
_EPOCH = datetime.fromtimestamp(0, UTC)
Values: TypeAlias = "tuple[Any, ...] | None"


def may_push_filters() -> bool:
    """Whether Spark plans a read in this process with filters for the source."""
    return _PROCESS in sys.modules


class PushedFilters(NamedTuple):
    """The rows that the filters leave to be read; `rest` is for Spark."""

    chosen: dict[str, set[Any]]
    """The values of a column that may occur, of columns with such a filter."""
    window: DueWindow
    rest: list[Filter]

    def has(self, column: str, value: Any) -> bool:
        """Whether rows with this value in the column are wanted."""
        return column not in self.chosen or value in self.chosen[column]

    def shards(self, shards: Iterable[Shard]) -> list[Shard]:
        """Return the shards that may have wanted rows."""
        return [
            shard
            for shard in shards
            if self.has("route", shard.route) and self.has("shard", shard.number)
        ]


def push(filters: Iterable[Filter], columns: Sequence[str]) -> PushedFilters:
    """Divide filters: equality of these columns is ours; a due range only narrows what is read."""
    chosen: dict[str, set[Any]] = {}
    window, rest = DueWindow(), []
    for each in filters:
        column, values = _chosen(each)
        if values is not None and column in columns:
            chosen[column] = chosen.get(column, set(values)) & set(values)
        elif not (isinstance(each, IsNotNull) and _column(each) in _NEVER_NULL):
            window = _narrowed(window, each)
            rest.append(each)
    return PushedFilters(chosen, window, rest)


def _column(given: Filter) -> str:
    return ".".join(getattr(given, "attribute", ()))


def _chosen(given: Filter) -> tuple[str, Values]:
    if isinstance(given, EqualTo | EqualNullSafe) and given.value is not None:
        return _column(given), (given.value,)
    return _column(given), given.value if isinstance(given, In) else None


_Ends: TypeAlias = Callable[[int], DueWindow]
_ENDS: dict[type[Filter], _Ends] = {
    EqualTo: lambda at_ms: DueWindow(at_ms, at_ms),
    GreaterThan: lambda at_ms: DueWindow(at_ms, None),
    GreaterThanOrEqual: lambda at_ms: DueWindow(at_ms, None),
    LessThan: lambda at_ms: DueWindow(None, at_ms),
    LessThanOrEqual: lambda at_ms: DueWindow(None, at_ms),
}


def _narrowed(window: DueWindow, given: Filter) -> DueWindow:
    """Return the window that a filter on `due_at` leaves, rounded outwards to whole ms."""
    at, ends = getattr(given, "value", None), _ENDS.get(type(given))
    if ends is None or _column(given) != "due_at" or not isinstance(at, datetime):
        return window
    moment = at if at.tzinfo else at.replace(tzinfo=UTC)
    return both(window, ends((moment - _EPOCH) // timedelta(milliseconds=1)))


def both(one: DueWindow, other: DueWindow) -> DueWindow:
    """Return the intersection of two windows."""
    begins = [each for each in (one.from_ms, other.from_ms) if each is not None]
    ends = [each for each in (one.to_ms, other.to_ms) if each is not None]
    return DueWindow(max(begins, default=None), min(ends, default=None))
