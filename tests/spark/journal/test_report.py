"""The job report: its figures, and a page that needs nothing and betrays nothing."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from duebridge_connectors.spark.jobs.report import run_report
from duebridge_connectors.spark.transforms.figures import figures, forecast, gaps, reasons
from tests.spark.world import World, setting

START = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)
COLUMNS = "kind string, at timestamp, route string, id string, due_at timestamp, attempt int,"
COLUMNS += " reason string, lost_entries long"


ROWS: list[tuple[str, int, int, int, str | None]] = [  # kind, minute, late ms, attempt, reason
    ("accepted", 0, 0, 1, None),
    ("delivered", 1, 10, 1, None),
    ("delivered", 1, 20, 2, None),
    ("delivered", 40, 30, 1, None),
    ("retried", 5, 0, 1, None),
    ("dead", 100, 0, 1, "unroutable"),
    ("expired", 101, 0, 1, "expired"),
]


def journal(spark: SparkSession) -> DataFrame:
    rows: list[tuple[Any, ...]] = [("gap", None, "r", None, None, None, None, 7)]
    for kind, minute, late_ms, attempt, reason in ROWS:
        at = START + timedelta(minutes=minute)
        rows.append((kind, at, "r", "x", at - timedelta(milliseconds=late_ms), attempt, reason, 0))
    return spark.createDataFrame(rows, COLUMNS)


def test_figures_by_hour_count_each_kind_and_measure_lateness(spark: SparkSession) -> None:
    with setting(spark, "spark.sql.session.timeZone", "Asia/Kolkata"):  # half an hour off
        rows = figures(journal(spark), "hour").orderBy("at").collect()
    assert [row.delivered for row in rows] == [2, 1, 0]
    first, second, third = rows
    assert (first.accepted, first.retried, first.repeated) == (1, 1, 1)
    assert (first.lateness_p50_ms, first.lateness_max_ms, first.busiest_minute) == (10, 20, 2)
    assert (second.lateness_p99_ms, second.busiest_minute) == (30, 1)
    assert (third.dead, third.expired, third.lateness_p50_ms) == (1, 1, None)


def test_figures_by_day_are_of_utc_days(spark: SparkSession) -> None:
    days = {day: datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2)}
    rows = figures(journal(spark), "day").select("route", "at", "delivered")
    wanted = [("r", days[1], 3), ("r", days[2], 0)]
    assertDataFrameEqual(rows, spark.createDataFrame(wanted, rows.schema))
    counted = reasons(journal(spark))
    wanted = [("r", days[2], reason, 1) for reason in ("unroutable", "expired")]
    assertDataFrameEqual(counted, spark.createDataFrame(wanted, counted.schema))
    assert [tuple(row) for row in gaps(journal(spark)).collect()] == [("r", 1, 7)]


def test_forecast_counts_what_waits_by_the_hour_it_falls_due(spark: SparkSession) -> None:
    held = [("r", state, START) for state in ("pending", "retry", "ready", "dead")]
    frame = spark.createDataFrame(held, "route string, state string, waits_for timestamp")
    hour = START.replace(minute=0)
    wanted = spark.createDataFrame([("r", hour, 2)], "route string, at timestamp, due long")
    assertDataFrameEqual(forecast(frame), wanted)


def test_run_report_writes_a_page_without_id_or_body(world: World) -> None:
    world.schedule("plain", "secret-id-1", "secret-id-2")
    world.schedule("plain", "secret-id-3", at=5)
    world.deliver("plain", 10)
    out = str(world.home / "report")
    done = run_report(world.spark, out, config=world.config)
    assert (done.accepted, done.delivered, done.waiting) == (3, 1, 2)
    text = (world.home / "report" / "report.html").read_text()
    assert "secret" not in text
    assert "plain" in text
    assert world.spark.read.parquet(f"{out}/forecast").count() >= 1


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine where a day of UTC begins in the evening before."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("new_york")
def test_run_report_on_a_machine_of_another_zone_is_of_utc_days(world: World) -> None:
    days = {f"{datetime.now(UTC):%Y-%m-%d}"}
    world.schedule("plain", "a", at=5)
    run_report(world.spark, str(world.home / "report"), config=world.config)
    days.add(f"{datetime.now(UTC):%Y-%m-%d}")
    text = (world.home / "report" / "report.html").read_text()
    assert set(re.findall(r"<td>(\d{4}-\d\d-\d\d)</td>", text)) <= days
