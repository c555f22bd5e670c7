"""The job `report`: figures of the past and a forecast, as Parquet and as one page.

    journal, live or a table ─▶ figures by hour and by day, reasons ─┬─▶ OUT/*.parquet
    store, cold tiers ─▶ envelopes falling due, by hour ─────────────┴─▶ OUT/report.html
    violations of reconcile, if given ─▶ duplicates

Only counts, times, routes and reasons leave the store: no id, no body, no header, no error text.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.config.load import load_config
from duebridge.scheduling.route_scheduler import find_route
from duebridge_connectors.spark.files.location import Stores
from duebridge_connectors.spark.filesystem import write_file
from duebridge_connectors.spark.jobs.evidence import read_cold_tiers, routes_in_store
from duebridge_connectors.spark.jobs.journal import read_journal
from duebridge_connectors.spark.page.figures import TABLES, ReportFigures
from duebridge_connectors.spark.page.html import render_page
from duebridge_connectors.spark.source.dataframes import read_source
from duebridge_connectors.spark.source.options import StoreOptions
from duebridge_connectors.spark.source.planning import store_address
from duebridge_connectors.spark.transforms.figures import figures, forecast, gaps, reasons

FILE = "report.html"


class ReportSummary(msgspec.Struct, frozen=True):
    """The totals of a report, and the path of its page."""

    page: str
    accepted: int
    delivered: int
    retried: int
    dead: int
    duplicates: int | None
    lost_entries: int
    waiting: int

    def __str__(self) -> str:
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
    """Write the figures of these routes (by default all) below `out`, and a page of them.

    `journal` is a table of the job journal, by default the store's own journal. `violations` is
    the output of reconcile; without it duplicates are unknown. Raises `ConfigError`, `StoreError`.
    """
    settings = load_config(config)
    wanted = [find_route(settings, name) for name in routes or sorted(settings.routes)]
    named = None if violations is None else spark.read.parquet(violations)
    known = routes_in_store(store_address(StoreOptions(config=config), settings), wanted)
    names = [route.name for route in wanted] if routes else []
    options = {"config": config} | ({"route": ",".join(names)} if names else {})
    rows = (
        read_journal(spark, Stores.of(settings).place(journal))
        if journal
        else read_source(spark, **options, stream="journal")
    )
    rows = _of_routes(rows, names).where(f"at is null or unix_millis(at) >= {since_ms}").persist()
    columns = ("route", "state", "waits_for")
    store = read_source(spark, **options, state="pending,retry")
    waiting = [store, *read_cold_tiers(spark, config, known)]
    held = reduce(DataFrame.union, [rows.select(*columns) for rows in waiting])
    tables = (figures(rows, "hour"), figures(rows, "day"), reasons(rows), gaps(rows))
    for name, table in zip(TABLES, (*tables, forecast(held)), strict=True):
        table.coalesce(1).write.mode("overwrite").parquet(f"{out}/{name}")
    rows.unpersist()
    read_back = _read_figures(spark, out, named, names)
    write_file(Stores.of(settings).place(f"{out}/{FILE}"), render_page(read_back).encode())
    return _summary(f"{out}/{FILE}", read_back)


def _of_routes(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    return rows.where(rows["route"].isin(list(names))) if names else rows


def _read_figures(
    spark: SparkSession, out: str, violations: DataFrame | None, names: Sequence[str]
) -> ReportFigures:
    """Read the figures back from the files, so that the page agrees with them."""
    tables: dict[str, Any] = {
        name: [_in_utc(row) for row in spark.read.parquet(f"{out}/{name}").collect()]
        for name in TABLES
    }
    duplicates = None
    if violations is not None:
        named = _of_routes(violations, names).where("kind = 'duplicates'")
        copies = named.groupBy("route").agg(
            F.sum(F.greatest(F.col("delivered") - F.col("accepted"), F.lit(1)))
        )
        duplicates = {row[0]: int(row[1]) for row in copies.collect()}
    return ReportFigures(made_at=datetime.now(UTC), duplicates=duplicates, **tables)


def _in_utc(row: Row) -> dict[str, Any]:
    """Return a row whose instant is of UTC: Spark gives it in this machine's zone, unnamed."""
    found = row.asDict()
    return found | {"at": found["at"].astimezone(UTC)} if "at" in found else found


def _summary(path: str, found: ReportFigures) -> ReportSummary:
    return ReportSummary(
        page=path,
        **{kind: found.total(kind) for kind in ("accepted", "delivered", "retried")},
        dead=found.total("dead", "expired"),
        duplicates=found.copies,
        lost_entries=found.lost_entries,
        waiting=found.waiting,
    )
