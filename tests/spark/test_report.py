"""The job report: its figures, and a page that needs nothing and betrays nothing."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from duebridge_connectors.spark.jobs.report import run_report
from duebridge_connectors.spark.page.figures import ReportFigures
from duebridge_connectors.spark.page.html import render_page
from duebridge_connectors.spark.transforms.figures import KINDS, figures, forecast, gaps, reasons
from tests.spark.conftest import LATER_MS, World
from tests.spark.test_journal import accept

START = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)
COLUMNS = "kind string, at timestamp, route string, id string, due_at timestamp, attempt int,"
COLUMNS += " reason string, lost_entries long"


def journal(spark: SparkSession) -> DataFrame:
    def row(
        kind: str, minutes: int, late_ms: int = 0, attempt: int = 1, reason: str | None = None
    ) -> tuple[Any, ...]:
        at = START + timedelta(minutes=minutes)
        return (kind, at, "r", "x", at - timedelta(milliseconds=late_ms), attempt, reason, 0)

    rows = [
        row("accepted", 0),
        row("delivered", 1, 10),
        row("delivered", 1, 20, attempt=2),
        row("delivered", 40, 30),
        row("retried", 5),
        row("dead", 100, reason="unroutable"),
        row("expired", 101, reason="expired"),
        ("gap", None, "r", None, None, None, None, 7),
    ]
    return spark.createDataFrame(rows, COLUMNS)


def test_figures_by_hour_count_each_kind_and_measure_lateness(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")  # half an hour off
    try:
        rows = figures(journal(spark), "hour").orderBy("at").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [row.delivered for row in rows] == [2, 1, 0]
    first, second, third = rows
    assert (first.accepted, first.retried, first.repeated) == (1, 1, 1)
    assert (first.lateness_p50_ms, first.lateness_max_ms, first.busiest_minute) == (10, 20, 2)
    assert (second.lateness_p99_ms, second.busiest_minute) == (30, 1)
    assert (third.dead, third.expired, third.lateness_p50_ms) == (1, 1, None)


def test_figures_by_day_are_of_utc_days(spark: SparkSession) -> None:
    wanted = [
        ("r", datetime(2026, 3, 1, tzinfo=UTC), 3),
        ("r", datetime(2026, 3, 2, tzinfo=UTC), 0),
    ]
    found = figures(journal(spark), "day").select("route", "at", "delivered")
    assertDataFrameEqual(
        found, spark.createDataFrame(wanted, "route string, at timestamp, delivered long")
    )


def test_reasons_and_gaps_are_counted_by_route(spark: SparkSession) -> None:
    day = datetime(2026, 3, 2, tzinfo=UTC)
    wanted = [("r", day, "unroutable", 1), ("r", day, "expired", 1)]
    schema = "route string, at timestamp, reason string, count long"
    assertDataFrameEqual(reasons(journal(spark)), spark.createDataFrame(wanted, schema))
    schema = "route string, gaps long, lost_entries long"
    assertDataFrameEqual(gaps(journal(spark)), spark.createDataFrame([("r", 1, 7)], schema))


def test_forecast_counts_what_waits_by_the_hour_it_falls_due(spark: SparkSession) -> None:
    held = [("r", state, START) for state in ("pending", "retry", "ready", "dead")]
    frame = spark.createDataFrame(held, "route string, state string, waits_for timestamp")
    hour = START.replace(minute=0)
    wanted = spark.createDataFrame([("r", hour, 2)], "route string, at timestamp, due long")
    assertDataFrameEqual(forecast(frame), wanted)


def test_run_report_writes_a_page_without_id_or_body(spark: SparkSession, world: World) -> None:
    accept(world, "plain", "secret-id-1")
    world.producer().schedule("plain", b"secret-body", id="secret-id-2", at=5)
    world.producer().schedule("plain", b"secret-body", id="secret-id-3", at=LATER_MS)
    world.deliver("plain", 10)
    out = str(world.home / "report")
    done = run_report(spark, out, config=world.config)
    assert (done.accepted, done.delivered, done.waiting) == (3, 1, 2)
    text = (world.home / "report" / "report.html").read_text()
    assert "secret" not in text
    assert "plain" in text
    assert spark.read.parquet(f"{out}/forecast").count() >= 1


class _Links(HTMLParser):
    """Everything that a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "img", "iframe", "object", "embed", "base"):
            self.found.append(tag)
        self.found += [
            f"{name}={value}"
            for name, value in attrs
            if name.startswith("on")
            or (name in ("src", "href") and not (value or "").startswith("#"))
        ]


def found_with(**more: Any) -> ReportFigures:
    row = dict.fromkeys(KINDS, 0) | {
        "route": "<b>&", "at": START, "repeated": 0, "busiest_minute": 3, "delivered": 9,
        "lateness_p50_ms": 4, "lateness_p90_ms": 5, "lateness_p99_ms": 6, "lateness_max_ms": 7,
    }  # fmt: skip
    empty = {"hours": [row], "days": [row], "reasons": [], "gaps": [], "forecast": []}
    return ReportFigures(START, **(empty | more))


def test_page_fetches_nothing_runs_nothing_and_escapes_names() -> None:
    text = render_page(found_with())
    links = _Links()
    links.feed(text)
    assert links.found == []
    assert "default-src 'none'" in text
    assert not re.search(r"url\(|@import", text)
    assert "<b>&<" not in text
    assert "No dead letters, no gaps, no late day, and no rush ahead." in text
