"""Bulk schedule of far rows that the cold tier has, or that a killed demote left half way."""

import json

import pytest
from pyspark.errors import PySparkException

from duebridge.config.models import HOUR_MS
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
