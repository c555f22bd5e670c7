"""Bulk schedule with a cold tier: what is due beyond the horizon never enters the store."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from duebridge.config.models import HOUR_MS
from duebridge.envelope import Envelope
from duebridge_connectors.spark.cold.tier import Tier
from duebridge_connectors.spark.jobs.hydrate import run_hydrate
from duebridge_connectors.spark.jobs.schedule import run_schedule
from tests.spark.conftest import LATER_MS, World
from tests.spark.test_demote import cold, warm

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


@pytest.fixture
def table(spark: SparkSession) -> Any:
    def view(rows: list[tuple[Any, ...]]) -> str:
        frame: DataFrame = spark.createDataFrame(rows, SCHEMA)
        frame.createOrReplaceTempView("given")
        return "given"

    return view


def scheduled(spark: SparkSession, world: World, table: str, **options: Any) -> Any:
    return run_schedule(spark, [table], form="table", **options, **world.options("cold"))


def test_schedule_sends_far_rows_to_the_cold_tier_and_all_others_to_the_store(
    spark: SparkSession, world: World, table: Any
) -> None:
    done = scheduled(spark, world, table(ROWS))
    assert (done.cold, done.accepted, done.refused, done.rows) == (2, 2, 4, 8)
    assert warm(world) == {"near", "late"}
    assert cold(spark, world) == ["far", "far too"]
    again = scheduled(spark, world, table(ROWS))
    assert (again.cold, again.accepted, again.duplicate, again.refused) == (0, 0, 4, 4)


def test_cold_row_that_was_scheduled_straight_obeys_a_cancel_and_comes_back(
    spark: SparkSession, world: World, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = world.producer()
    assert producer.cancel("cold", "kept") == "recorded", (
        "before it was scheduled: it binds nothing"
    )
    rows = [(name, "x", LATER_MS, None, None) for name in ("kept", "cancelled", "moved")]
    assert scheduled(spark, world, table(rows)).cold == 3
    assert producer.cancel("cold", "cancelled") == "recorded"
    assert producer.reschedule("cold", "moved", at=LATER_MS + 7) == "recorded"
    monkeypatch.setattr(Tier, "boundary_ms", lambda _: LATER_MS + HOUR_MS)
    done = run_hydrate(spark, config=world.config, route="cold")
    assert (done.accepted, done.cancelled) == (2, 1)
    dues = {name: known.due_at_ms for name in warm(world) if (known := producer.get("cold", name))}
    assert dues == {"kept": LATER_MS, "moved": LATER_MS + 7}
    (receipt,) = producer.schedule_many("cold", [Envelope.new(b"x", id="kept", at=LATER_MS)])
    assert receipt.status == "duplicate", "its content is what a producer would have stored"


def test_schedule_that_keeps_all_in_the_store_writes_no_file(
    spark: SparkSession, world: World, table: Any
) -> None:
    done = scheduled(spark, world, table(ROWS[:1]), cold=False)
    assert (done.cold, done.accepted) == (0, 1)
    assert cold(spark, world) == []
