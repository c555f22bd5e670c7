"""Bulk schedule with a cold tier: what is due beyond the horizon never enters the store."""

from typing import Any

from duebridge_connectors.spark.jobs.schedule import run_schedule
from tests.spark.cold_route import ColdRoute
from tests.spark.world import LATER_MS

SCHEMA = "id string, body string, due_at bigint, delay string, expires string"
ROWS = [
    ("far", "x", LATER_MS, None, None),
    ("far too", "x", None, "40d", "41d"),
    ("near", "x", None, "6d", None),
    ("late", "x", 5, None, None),
    ("too far", "x", None, "400d", None),
    ("expires first", "x", LATER_MS, None, "20d"),
    ("too large", "x" * 300_000, LATER_MS, None, None),
    ("undue", "x", None, None, None),
]


def scheduled(to: ColdRoute, rows: list[tuple[Any, ...]], **options: Any) -> Any:
    to.spark.createDataFrame(rows, SCHEMA).createOrReplaceTempView("given")
    return run_schedule(to.spark, ["given"], form="table", **to.to, **options)


def test_schedule_sends_far_rows_to_the_cold_tier_and_all_others_to_the_store(
    cold: ColdRoute,
) -> None:
    done = scheduled(cold, ROWS)
    assert (done.cold, done.accepted, done.refused, done.rows) == (2, 2, 4, 8)
    assert (cold.warm(), cold.ids()) == ({"near", "late"}, ["far", "far too"])
    again = scheduled(cold, ROWS)
    assert (again.cold, again.accepted, again.duplicate, again.refused) == (0, 0, 4, 4)


def test_cold_row_that_was_scheduled_straight_obeys_a_cancel_and_comes_back(
    cold: ColdRoute, reach: Any
) -> None:
    producer = cold.world.producer()
    assert producer.cancel("cold", "kept") == "recorded", "before it exists: it binds nothing"
    rows = [(name, "x", LATER_MS, None, None) for name in ("kept", "cancelled", "moved")]
    assert scheduled(cold, rows).cold == 3
    assert producer.cancel("cold", "cancelled") == "recorded"
    assert producer.reschedule("cold", "moved", at=LATER_MS + 7) == "recorded"
    reach(hours=1)
    done = cold.hydrate()
    assert (done.accepted, done.cancelled, cold.warm()) == (2, 1, {"kept", "moved"})
    assert cold.world.due("cold", "kept") == LATER_MS
    assert cold.world.due("cold", "moved") == LATER_MS + 7
    receipt = producer.schedule("cold", b"x", id="kept", at=LATER_MS)
    assert receipt.status == "duplicate", "its content is what a producer would have stored"


def test_schedule_that_keeps_all_in_the_store_writes_no_file(cold: ColdRoute) -> None:
    done = scheduled(cold, ROWS[:1], cold=False)
    assert (done.cold, done.accepted, cold.ids()) == (0, 1, [])
