"""The journal's table by the readers that people have; what a session needs for Delta's own."""

from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.errors import ConfigError
from duebridge_connectors.spark.jobs.journal import read_journal
from duebridge_connectors.spark.jobs.tidy import tidy
from duebridge_connectors.spark.session import check_delta_reader, delta_settings
from duebridge_connectors.spark.table.journal_files import write_files
from duebridge_connectors.spark.table.journal_table import JournalTable
from tests.spark.journal.journal_by_hand import AT, QUERY, journal_rows
from tests.spark.world import World, setting

BATCHES = 14  # beyond ten commits the log has a checkpoint
COLUMNS = ["id", "route", "sequence", "at_ms", "due_at_ms", "day"]
COMMITS = 12  # beyond ten there is a checkpoint, which some versions of the reader cannot read


def test_table_gives_spark_duckdb_and_polars_the_same_rows_past_a_checkpoint(world: World) -> None:
    root = str(world.home / "journal")
    wanted = sorted(row for number in range(BATCHES) for row in batch(root, number))
    assert (world.home / "journal" / "_delta_log" / "_last_checkpoint").exists()
    readers = (by_spark, by_duckdb, by_polars)
    assert [read(world, root) for read in readers] == [wanted] * 3
    tidy(root, 0)
    assert [read(world, root) for read in readers] == [wanted] * 3


def batch(root: str, number: int) -> list[tuple[Any, ...]]:
    """Append a batch, of a day or the next; returns its rows."""
    at = AT + timedelta(days=number % 2, milliseconds=number)
    version = JournalTable(root).begun(QUERY)
    names = [f"{number}-{each}" for each in range(3)]
    version.commit(QUERY, number, list(write_files(root, AT.date(), [journal_rows(names, at=at)])))
    at_ms = int(at.timestamp() * 1000)
    return [
        (name, "plain", sequence, at_ms, at_ms, at.date()) for sequence, name in enumerate(names, 1)
    ]


def by_spark(world: World, root: str) -> list[tuple[Any, ...]]:
    with setting(world.spark, "spark.sql.session.timeZone", "Asia/Tokyo"):
        found = read_journal(world.spark, root)
        instants = {f"{name}_ms": F.unix_millis(name) for name in ("at", "due_at")}
        return sorted(map(tuple, found.withColumns(instants).select(COLUMNS).collect()))


def by_duckdb(_: World, root: str) -> list[tuple[Any, ...]]:
    journal = DeltaTable(root).to_pyarrow_dataset()  # duckdb finds it by its name
    query = 'select id, route, sequence, epoch_ms("at"), epoch_ms(due_at), day from journal'
    rows: list[tuple[Any, ...]] = duckdb.sql(query).fetchall()
    assert journal.schema.names[-1] == "day"
    return sorted(rows)


def by_polars(_: World, root: str) -> list[tuple[Any, ...]]:
    instants = [pl.col(name).dt.epoch("ms").alias(f"{name}_ms") for name in ("at", "due_at")]
    days: list[date] = pl.read_delta(root)["day"].unique().to_list()
    assert set(days) == {AT.date(), AT.date() + timedelta(days=1)}
    return sorted(pl.read_delta(root).with_columns(instants).select(COLUMNS).rows())


def test_delta_settings_add_to_other_extensions_and_keep_what_is_given() -> None:
    asked = {
        "spark.sql.extensions": "a.Own, a.Own",
        "spark.databricks.delta.snapshotPartitions": "8",
    }
    found = delta_settings({"spark.master": "local", **asked})
    assert found["spark.sql.extensions"] == "a.Own,io.delta.sql.DeltaSparkSessionExtension"
    assert found["spark.databricks.delta.snapshotPartitions"] == "8"
    assert found["spark.master"] == "local"
    assert delta_settings(found) == found


def test_check_delta_reader_of_a_session_without_it_names_the_package() -> None:
    bare: Any = SimpleNamespace(conf={})
    with pytest.raises(ConfigError, match=r"expected a session .* --packages io.delta:delta-spark"):
        check_delta_reader(bare)


def test_read_of_a_table_that_deltalake_wrote_past_a_checkpoint_gives_every_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    for number in range(COMMITS):
        rows = pa.table({"number": [number], "day": ["2026-03-01"]})
        every_tenth = {"delta.checkpointInterval": "10"}
        write_deltalake(table, rows, mode="append", partition_by=["day"], configuration=every_tenth)
    assert (tmp_path / "table" / "_delta_log" / "_last_checkpoint").exists()
    check_delta_reader(spark)
    found = spark.read.format("delta").load(table).collect()
    assert sorted(row["number"] for row in found) == list(range(COMMITS))
