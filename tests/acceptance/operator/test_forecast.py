"""How fast envelopes come and go, what falls due when, and what a route then has to deliver."""

from itertools import pairwise
from typing import Any

import pytest

from duebridge.admin.forecast import BUCKETS, ForecastBucket, backlogs, forecast
from duebridge.admin.histogram import HORIZON_MS, DueBucket, due_histogram, edges
from duebridge.admin.rates import Tally, rates, recent
from duebridge.errors import ConfigError, EnvelopeError
from tests.acceptance.desk_of_operator import (
    HOUR_MS,
    MINUTE_MS,
    ORDERS,
    REMINDERS,
    OperatorsDesk,
)


def test_rates_count_what_the_journals_of_all_shards_have_by_kind(desk: OperatorsDesk) -> None:
    desk.deliver(ORDERS, *[f"a{n}" for n in range(30)])
    desk.dead(ORDERS, "b", "c")
    desk.pending(REMINDERS, {"d": HOUR_MS})
    orders, reminders = rates(desk.operator, [ORDERS, REMINDERS], over_s=3600)
    assert orders.route == ORDERS
    counts = (orders.accepted_per_s, orders.delivered_per_s)
    assert [round(3600 * each, 6) for each in counts] == [32, 30]
    assert round(3600 * reminders.accepted_per_s, 6) == 1
    assert reminders.delivered_per_s == 0


def test_rates_leave_out_what_is_older(desk: OperatorsDesk) -> None:
    desk.pending(REMINDERS, {"a": HOUR_MS})
    (journal,) = desk.operator.journals(REMINDERS)
    (newest,) = journal.newest()
    assert recent(journal, newest.at_ms).tallies == [Tally("accepted", newest.at_ms, 1)]
    assert recent(journal, newest.at_ms + 1).tallies == []


def test_recent_that_is_too_many_bytes_covers_a_shorter_time_whole(desk: OperatorsDesk) -> None:
    for n in range(60):
        desk.pending(REMINDERS, {f"{n}": HOUR_MS})
    (journal,) = desk.operator.journals(REMINDERS)
    instants = [head.at_ms for head in journal.newest()]
    found = recent(journal, 0, most_bytes=10)
    assert found.since_ms > 0
    assert [each.at_ms for each in found.tallies] == [
        at_ms for at_ms in instants if at_ms >= found.since_ms
    ]
    assert len(found.tallies) < 60


def test_forecast_puts_what_is_scheduled_and_the_retries_into_buckets(desk: OperatorsDesk) -> None:
    desk.retry(ORDERS, "r", delay_ms=30 * MINUTE_MS)
    desk.pending(ORDERS, {f"a{n}": 10 * MINUTE_MS + 30_000 for n in range(9)})
    desk.pending(ORDERS, {"late": -MINUTE_MS, "far": 2 * HOUR_MS})
    found = forecast(desk.operator, ORDERS, "hour")
    assert len(found.buckets) == 60
    assert found.buckets[0].from_ms == found.now_ms + 1
    assert (sum(each.due for each in found.buckets), found.overdue) == (9, 1)
    assert sum(each.retries for each in found.buckets) == 1
    (bucket,) = [each for each in found.buckets if each.due]
    assert bucket.from_ms <= desk.now_ms + 10 * MINUTE_MS + 30_000 < bucket.to_ms


def test_forecast_without_a_delivery_knows_no_capacity_and_foretells_no_wait(
    desk: OperatorsDesk,
) -> None:
    desk.pending(ORDERS, {"a": MINUTE_MS})
    found = forecast(desk.operator, ORDERS, "day")
    assert (found.capacity_per_s, found.late_ms) == (None, None)
    assert {each.backlog for each in found.buckets} == {None}


def test_forecast_foretells_the_backlog_and_the_longest_wait_at_the_rate_seen(
    desk: OperatorsDesk,
) -> None:
    desk.deliver(ORDERS, *[f"d{n}" for n in range(10)])
    desk.pending(ORDERS, {f"a{n}": 10 * MINUTE_MS + 30_000 for n in range(1000)})
    found = forecast(desk.operator, ORDERS, "hour")
    assert found.capacity_per_s is not None
    assert found.capacity_per_s in [n / 10 for n in range(1, 11)], "ten, maybe across two slots"
    most = max(each.backlog or 0 for each in found.buckets)
    assert most > 800
    assert found.late_ms == round(1000 * most / found.capacity_per_s)


BACKLOGS = [
    (0, [0, 5, 10, 0], 1.0, [0, 0, 0, 0]),
    (0, [30, 0, 25, 0], 1.0, [20, 10, 25, 15]),
    (100, [0, 0, 0, 0], 4.0, [60, 20, 0, 0]),
    (1, [0, 0, 0, 1], 0.05, [0, 0, 0, 0]),
    (2, [0, 0, 0, 0], 0.01, [2, 2, 2, 2]),
]


@pytest.mark.parametrize(("overdue", "dues", "rate", "expected"), BACKLOGS)
def test_backlog_is_what_came_and_has_not_gone_at_the_end_of_a_bucket(
    overdue: int, dues: list[int], rate: float, expected: list[int]
) -> None:
    buckets = [DueBucket(n * 10_000, (n + 1) * 10_000, due, 0) for n, due in enumerate(dues)]
    assert backlogs(overdue, buckets, rate) == expected


@pytest.mark.parametrize("horizon", BUCKETS)
def test_forecast_reaches_to_its_horizon(desk: OperatorsDesk, horizon: Any) -> None:
    found = forecast(desk.operator, REMINDERS, horizon)
    assert len(found.buckets) == BUCKETS[horizon]
    first = found.buckets[0]
    assert first == ForecastBucket(found.now_ms + 1, first.to_ms, 0, 0, None)
    assert found.buckets[-1].to_ms > found.now_ms


def test_forecast_of_what_there_is_not_is_refused(desk: OperatorsDesk) -> None:
    with pytest.raises(ConfigError, match="got 'nothing'"):
        forecast(desk.operator, "nothing", "hour")
    with pytest.raises(EnvelopeError, match="horizon: expected one of hour, day, week; got 'year'"):
        forecast(desk.operator, ORDERS, "year")  # type: ignore[arg-type]


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
