"""Bulk schedule: which columns of an input become an envelope's, and what the command says."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from duebridge.errors import ConfigError
from duebridge_connectors.spark.commands.job import parse_pairs
from duebridge_connectors.spark.jobs.schedule import run_schedule
from duebridge_connectors.spark.transforms.envelopes import select_columns
from tests.spark.world import LATER_MS, World

MADE = {"body": "concat('order ', number)", "due_at": f"{LATER_MS} + cast(number as bigint)"}


@pytest.fixture
def orders(tmp_path: Path) -> str:
    """Three orders, one of them without a number, as a CSV file."""
    path = tmp_path / "orders.csv"
    path.write_text("number,key,city\n7,k,Rome\n8,,Oslo\n,,Lima\n")
    return str(path)


def test_choose_columns_makes_keeps_and_leaves_out(spark: SparkSession) -> None:
    rows = [("7", "k", "Rome"), ("8", "q", "Oslo")]
    frame = spark.createDataFrame(rows, "number string, key string, city string")
    chosen = select_columns(frame, {"body": "upper(city)"}, "number > 7", keep=("number",))
    expected = spark.createDataFrame([("8", "q", "OSLO")], "number string, key string, body string")
    assertDataFrameEqual(chosen, expected)


def test_schedule_csv_stores_each_row_once_and_counts_the_refused(
    spark: SparkSession, world: World, orders: str
) -> None:
    options = world.options("plain", id_columns="number")
    first = run_schedule(spark, [orders], form="csv", columns=MADE, **options)
    assert (first.accepted, first.refused) == (2, 1)
    again = run_schedule(spark, [orders], form="csv", columns=MADE, **options)
    assert (again.accepted, again.duplicate, again.refused) == (0, 2, 1)
    assert len(world.ids("plain")) == 2


def test_schedule_from_what_cannot_be_read_is_refused(spark: SparkSession, world: World) -> None:
    with pytest.raises(ConfigError, match=r"format: expected one of parquet, .*; got 'xls'"):
        run_schedule(spark, ["x"], form="xls", **world.options("plain"))
    with pytest.raises(ConfigError, match="the name of one table; got 2"):
        run_schedule(spark, ["x", "y"], form="table", **world.options("plain"))


def test_read_pairs_without_a_sign_are_refused() -> None:
    assert parse_pairs("--column", ["a=b = c"]) == {"a": "b = c"}
    with pytest.raises(ConfigError, match="--column: expected NAME=VALUE; got 'due_at'"):
        parse_pairs("--column", ["due_at"])


@pytest.mark.long
def test_run_the_command_schedules_and_ends_with_the_counts(world: World, orders: str) -> None:
    words = ["spark", "schedule", "plain", orders, "--format", "csv", "--id-columns", "number"]
    words += [f"--column={name}={made}" for name, made in MADE.items()]
    done = world.command(*words, "--where", "number > 7", "--output", "json")
    assert (done.code, done.json()["accepted"]) == (0, 1), done.err
    assert done.err == "", "the counts are said once"
