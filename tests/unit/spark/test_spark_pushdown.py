"""Filters of a query: equality is applied by the source, a due range narrows what it reads."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from duebridge.store.calls.reading_calls import Split
from duebridge.store.keys import Shard
from duebridge_connectors.spark.source.pushdown import may_push_filters, push
from duebridge_connectors.spark.source.slices import SLICE_ROWS, RowSpan, ShardState, divide

ROUTE, STATE, DUE = ("route",), ("state",), ("due_at",)
COLUMNS = ("route", "shard", "state")
AT_MS = 1_900_000_000_001
AT = datetime.fromtimestamp(1_900_000_000, UTC).replace(microsecond=1500)
ONE, OTHER = (Shard("n", "r", number) for number in range(2))


def test_equality_of_a_column_is_applied_here() -> None:
    given: list[Filter] = [IsNotNull(ROUTE), EqualTo(ROUTE, "a"), In(STATE, ("ready", "dead"))]
    pushed = push(given, COLUMNS)
    assert pushed.rest == []
    assert [pushed.has("route", name) for name in ("a", "b")] == [True, False]
    assert [pushed.has("state", name) for name in ("dead", "retry")] == [True, False]
    assert pushed.has("shard", 7)


def test_equality_twice_leaves_what_both_allow() -> None:
    pushed = push([In(ROUTE, ("a", "b")), EqualTo(ROUTE, "b"), EqualTo(ROUTE, "c")], COLUMNS)
    assert pushed.chosen == {"route": set()}


@pytest.mark.parametrize("given", [
    Not(EqualTo(ROUTE, "a")), IsNull(ROUTE), IsNotNull(("key",)), EqualTo(("id",), "a"),
    StringStartsWith(ROUTE, "a"), EqualTo(("target", "topic"), "a"), EqualTo(ROUTE, None),
])  # fmt: skip
def test_other_filters_are_left_to_spark(given: Filter) -> None:
    pushed = push([given], COLUMNS)
    assert (pushed.chosen, pushed.window, pushed.rest) == ({}, (None, None), [given])


@pytest.mark.parametrize(("given", "window"), [
    (GreaterThan(DUE, AT), (AT_MS, None)),
    (GreaterThanOrEqual(DUE, AT.replace(tzinfo=None)), (AT_MS, None)),
    (LessThan(DUE, AT), (None, AT_MS)),
    (LessThanOrEqual(DUE, AT), (None, AT_MS)),
    (EqualTo(DUE, AT), (AT_MS, AT_MS)),
    (GreaterThan(("waits_for",), AT), (None, None)),
    (GreaterThan(DUE, "text"), (None, None)),
])  # fmt: skip
def test_due_range_is_narrowed_outwards_and_applied_by_spark_too(given: Any, window: Any) -> None:
    pushed = push([given], COLUMNS)
    assert (pushed.window, pushed.rest) == (window, [given])


def test_reader_takes_filters_only_in_the_process_that_spark_has_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Elsewhere Spark refuses a reader that would take them."""
    assert not may_push_filters()
    monkeypatch.setitem(
        __import__("sys").modules, "pyspark.sql.worker.data_source_pushdown_filters", None
    )
    assert may_push_filters()


def split(shard: Shard, state: str, most: int) -> Split:
    """A state whose rows are named by their rank, and whose scores are all equal."""
    return Split(200_000, [(f"{rank:06}", 5) for rank in range(most - 1, 199_999, most)])


def test_large_state_has_many_slices_and_small_ones_share() -> None:
    places = [
        ShardState(ONE, "pending", 200_000),
        ShardState(ONE, "ready", 10),
        ShardState(ONE, "dead", 0),
    ]
    *large, small = divide(places, split, 1, None)
    assert len(large) == 200_000 // SLICE_ROWS
    assert small.spans == (RowSpan(ONE, "ready"), RowSpan(ONE, "dead"))


def test_slices_of_a_state_join_without_a_gap() -> None:
    slices = divide([ShardState(ONE, "pending", 200_000)], split, 7, None)
    spans = [span for each in slices for span in each.spans]
    assert len(spans) >= 7
    assert (spans[0].after, spans[-1].until) == (None, None)
    assert [span.until for span in spans[:-1]] == [span.after for span in spans[1:]]


def test_slices_are_no_more_than_the_connections() -> None:
    places = [ShardState(shard, "pending", 200_000) for shard in (ONE, OTHER)]
    slices = divide(places, split, 40, 3)
    assert len(slices) == 3
    assert sum(len(each.spans) for each in slices) == 40


def test_shard_without_rows_is_read_nevertheless() -> None:
    """A plan may be older than the rows that it reads."""
    (only,) = divide([ShardState(ONE, "pending", 0), ShardState(ONE, "dead", 0)], split, 9, None)
    assert only.spans == (RowSpan(ONE, "pending"), RowSpan(ONE, "dead"))
