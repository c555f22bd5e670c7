"""What falls due when, summed over routes and shards."""

from itertools import pairwise
from typing import Any

import pytest

from duebridge.admin.histogram import HORIZON_MS, DueBucket, due_histogram, edges
from duebridge.errors import EnvelopeError
from tests.acceptance.desk_of_operator import HOUR_MS, ORDERS, REMINDERS, OperatorsDesk


def test_histogram_sums_the_shards_of_all_routes(desk: OperatorsDesk) -> None:
    desk.retry(ORDERS, *[f"r{n}" for n in range(9)], delay_ms=3 * HOUR_MS)
    desk.pending(ORDERS, {f"a{n}": HOUR_MS + n for n in range(20)})
    desk.pending(REMINDERS, {"b": HOUR_MS, "later": 2 * HOUR_MS})
    ends = [desk.now_ms + HOUR_MS * hours for hours in (1, 2, 4)]
    assert due_histogram(desk.operator, [ORDERS, REMINDERS], ends) == [
        DueBucket(ends[0], ends[1], 21, 0),
        DueBucket(ends[1], ends[2], 1, 9),
    ]
    assert [each.due for each in due_histogram(desk.operator, [REMINDERS], ends)] == [1, 1]
    assert [each.due for each in due_histogram(desk.operator, [], ends)] == [0, 0]


@pytest.mark.parametrize("horizon", HORIZON_MS)
def test_edges_part_the_horizon_evenly_from_now_to_its_end(horizon: Any) -> None:
    found = edges(1000, horizon, 60)
    steps = {high - low for low, high in pairwise(found)}
    assert (found[0], found[-1], len(steps)) == (1000, 1000 + HORIZON_MS[horizon], 1)


@pytest.mark.parametrize(("horizon", "count"), [("month", 1), ("hour", 0), ("hour", 501)])
def test_edges_of_what_there_is_not_are_refused(horizon: Any, count: int) -> None:
    with pytest.raises(EnvelopeError, match="expected"):
        edges(0, horizon, count)


@pytest.mark.parametrize("given", [[], [1], [1, 1], [2, 1], range(502)])
def test_histogram_of_edges_that_do_not_rise_is_refused(
    desk: OperatorsDesk, given: list[int]
) -> None:
    with pytest.raises(EnvelopeError, match="edges_ms: expected"):
        due_histogram(desk.operator, [ORDERS], given)
