"""Bulk schedule of far rows that the cold tier has, or that a killed demote left half way."""

import json
from functools import partial

import pytest
from pyspark.errors import PySparkException

from duebridge.config.models import HOUR_MS
from duebridge_connectors.spark.jobs.schedule import run_schedule
from duebridge_connectors.spark.rows.ids import derive_id
from tests.spark.cold_route import ColdRoute
from tests.spark.test_schedule import scheduled
from tests.spark.world import LATER_MS

HALVES = [
    ("far", "x", LATER_MS, None, None),
    ("living", "x", LATER_MS, None, None),
    ("near", "x", None, "1h", None),
    ("bad", "x", None, None, None),
]


@pytest.mark.parametrize("step", ["before removal", "before the end"])
def test_schedule_after_a_killed_demote_counts_what_is_nowhere_else_as_cold(
    cold: ColdRoute, step: str
) -> None:
    producer = cold.world.producer()
    cold.schedule("stays", "ended")
    cold.demote_until(step)
    producer.cancel("cold", "ended")
    rows = [(n, f"body of {n}", LATER_MS + i * HOUR_MS) for i, n in enumerate(("stays", "ended"))]
    done = scheduled(cold, [(*row, None, None) for row in rows])
    is_cold = step == "before the end"  # the store had removed it: its cancel binds
    assert (done.duplicate, done.cold, done.cancelled) == (1, not is_cold, is_cold)
    cold.reach()
    cold.hydrate()
    assert cold.warm() == ({"stays"} if is_cold else {"stays", "ended"})


def test_schedule_again_of_cold_rows_that_were_cancelled_counts_them_as_cancelled(
    cold: ColdRoute,
) -> None:
    rows = [(name, "x", LATER_MS, None, None) for name in ("gone", "kept", "other")]
    assert scheduled(cold, rows).cold == 3
    assert cold.world.producer().cancel("cold", "gone") == "recorded"
    done = scheduled(cold, [rows[0], *rows])
    assert (done.cold, done.cancelled, done.duplicate, done.rows) == (0, 2, 2, 4)
    cold.reach(hours=1)
    assert (cold.hydrate().accepted, cold.warm()) == (2, {"kept", "other"})


@pytest.mark.parametrize("first", ["to files", "to the store"])
def test_schedule_again_within_the_horizon_of_what_was_cancelled_while_cold_brings_nothing_back(
    cold: ColdRoute, first: str
) -> None:
    rows = [(name, "x", LATER_MS, None, None) for name in ("gone", "kept")]
    scheduled(cold, rows, cold=first == "to files")
    while cold.warm():
        cold.demote()
    assert cold.world.producer().cancel("cold", "gone") == "recorded"
    cold.reach(hours=1)
    done = scheduled(cold, rows)
    assert (done.cold, done.accepted, done.cancelled, done.rows) == (0, 1, 1, 2)
    cold.hydrate()
    assert cold.warm() == {"kept"}
    assert scheduled(cold, [("gone", "news", LATER_MS, None, None)]).accepted == 1


def test_schedule_again_of_derived_ids_that_were_cancelled_while_cold_brings_nothing_back(
    cold: ColdRoute,
) -> None:
    frame = cold.spark.createDataFrame(
        [("gone", LATER_MS), ("kept", LATER_MS)], "of string, due_at bigint"
    )
    frame.selectExpr("*", "'x' AS body").createOrReplaceTempView("given")
    schedule = partial(run_schedule, cold.spark, ["given"], form="table", **cold.to)
    assert schedule(id_columns="of").cold == 2
    gone = derive_id(["gone"], ["of"])
    assert cold.world.producer().cancel("cold", gone) == "recorded"
    cold.reach(hours=1)
    done = schedule(id_columns="of")
    assert (done.accepted, done.cancelled, done.rows) == (1, 1, 2)


def test_schedule_in_both_halves_writes_the_counts_of_all_rows(cold: ColdRoute) -> None:
    cold.world.producer().schedule("cold", b"other", id="living", delay="1h")
    summary = cold.world.home / "summary.json"
    done = scheduled(cold, HALVES, summary=str(summary), max_rejects=2)
    assert (done.cold, done.accepted, done.conflict, done.refused) == (1, 1, 1, 1)
    found = json.loads(summary.read_text())
    assert {name: getattr(done, name) for name in found} == found


def test_schedule_with_too_many_rejects_in_both_halves_together_fails(cold: ColdRoute) -> None:
    cold.world.producer().schedule("cold", b"other", id="living", delay="1h")
    with pytest.raises(PySparkException, match="maxRejects"):
        scheduled(cold, HALVES, max_rejects=1)
