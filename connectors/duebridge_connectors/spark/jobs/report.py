"""The job `report`: what happened and what is to come, as Parquet and as one page.

    journal, live or a table ─▶ figures by hour and by day, reasons ─┬─▶ OUT/*.parquet
    store, cold tiers ─▶ what falls due, by hour ────────────────────┴─▶ OUT/report.html
    violations of reconcile, where there are ─▶ duplicates

Only counts, times, routes and reasons leave the store: no id, no body, no header, no error text.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.config.load import load_config
from duebridge.producer import find_route
from duebridge_connectors.spark.filesystem import write_file
from duebridge_connectors.spark.jobs.evidence import read_cold_tiers, routes_in_store
from duebridge_connectors.spark.jobs.journal import read_journal
from duebridge_connectors.spark.page.figures import ReportFigures
from duebridge_connectors.spark.page.html import render_page
from duebridge_connectors.spark.source.dataframes import activate
from duebridge_connectors.spark.source.datasource import NAME
from duebridge_connectors.spark.source.options import StoreOptions
from duebridge_connectors.spark.source.planning import store_address
from duebridge_connectors.spark.transforms.figures import figures, forecast, gaps, reasons

FILE = "report.html"


class ReportSummary(msgspec.Struct, frozen=True):
    """What the report says, in short, and where it is."""

    page: str
    accepted: int
    delivered: int
    retried: int
    dead: int
    duplicates: int | None
    lost_entries: int
    waiting: int

    def __str__(self) -> str:
        """Return one line for people."""
        gap = f", {self.lost_entries:,} entries of the journal lost" if self.lost_entries else ""
        return (
            f"{self.page}: {self.accepted:,} accepted, {self.delivered:,} delivered,"
            f" {self.retried:,} retried, {self.dead:,} dead, {self.waiting:,} waiting{gap}"
        )


def run_report(
    spark: SparkSession,
    out: str,
    *,
    config: str,
    routes: Sequence[str] = (),
    journal: str | None = None,
    violations: str | None = None,
    since_ms: int = 0,
) -> ReportSummary:
    """Write the figures of these routes (all if none is named) below `out`, and a page of them.

    `journal` is a table of the job journal; without it the store's own is read. `violations` is
    what reconcile left: without it nobody knows of duplicates. Raises `ConfigError`, `StoreError`.
    """
    settings = load_config(config)
    wanted = [find_route(settings, name) for name in routes or sorted(settings.routes)]
    there = routes_in_store(store_address(StoreOptions(config=config), settings), wanted)
    names = [route.name for route in wanted] if routes else []
    options = {"config": config} | ({"route": ",".join(names)} if names else {})
    source = activate(spark).read.format(NAME).options(**options)
    rows = read_journal(spark, journal) if journal else source.option("stream", "journal").load()
    rows = _chosen(rows, names).where(f"at is null or unix_millis(at) >= {since_ms}").persist()
    store = spark.read.format(NAME).options(**options).option("state", "pending,retry").load()
    columns = ("route", "state", "waits_for")
    waiting = [store, *read_cold_tiers(spark, config, there)]
    held = reduce(DataFrame.union, [each.select(*columns) for each in waiting])
    tables = {
        "hours": figures(rows, "hour"),
        "days": figures(rows, "day"),
        "reasons": reasons(rows),
        "gaps": gaps(rows),
        "forecast": forecast(held),
    }
    for name, table in tables.items():
        table.coalesce(1).write.mode("overwrite").parquet(f"{out}/{name}")
    rows.unpersist()
    found = _found(spark, out, violations, names)
    write_file(f"{out}/{FILE}", render_page(found).encode())
    return _summary(f"{out}/{FILE}", found)


def _chosen(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    return rows.where(rows["route"].isin(list(names))) if names else rows


def _found(
    spark: SparkSession, out: str, violations: str | None, names: Sequence[str]
) -> ReportFigures:
    """Return the figures as the page takes them: read back, so that page and files agree."""

    def rows(name: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in spark.read.parquet(f"{out}/{name}").collect()]

    duplicates = None
    if violations is not None:
        named = _chosen(spark.read.parquet(violations), names).where("kind = 'duplicates'")
        copies = named.groupBy("route").agg(F.sum(F.col("delivered") - F.col("accepted")))
        duplicates = {row[0]: int(row[1]) for row in copies.collect()}
    return ReportFigures(
        made_at=datetime.now(UTC),
        hours=rows("hours"),
        days=rows("days"),
        reasons=rows("reasons"),
        gaps=rows("gaps"),
        forecast=rows("forecast"),
        duplicates=duplicates,
    )


def _summary(place: str, found: ReportFigures) -> ReportSummary:
    def total(*kinds: str) -> int:
        return sum(row[kind] for row in found.days for kind in kinds)

    return ReportSummary(
        page=place,
        accepted=total("accepted"),
        delivered=total("delivered"),
        retried=total("retried"),
        dead=total("dead", "expired"),
        duplicates=None if found.duplicates is None else sum(found.duplicates.values()),
        lost_entries=sum(row["lost_entries"] for row in found.gaps),
        waiting=sum(row["due"] for row in found.forecast),
    )
