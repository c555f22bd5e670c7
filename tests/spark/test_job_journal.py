"""The job journal: every row once in the table, whatever is killed; few files; gaps kept."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from duebridge.errors import ConfigError
from duebridge_connectors.spark.jobs import journal as job
from duebridge_connectors.spark.jobs.journal import (
    JournalSink,
    JournalSummary,
    read_journal,
    run_journal,
    small_files,
    with_day,
)
from duebridge_connectors.spark.jobs.journal_table import DataFile, JournalTable
from duebridge_connectors.spark.source.schema import JOURNAL
from tests.spark.cold_route import Killed
from tests.spark.world import World, setting


class Table:
    """The table of a world's journal."""

    def __init__(self, world: World) -> None:
        self.world, self.home = world, world.home / "journal"
        self.files = JournalTable(str(self.home))

    def run(self, **options: Any) -> JournalSummary:
        return run_journal(self.world.spark, self.files.root, config=self.world.config, **options)

    def rows(self) -> DataFrame:
        return read_journal(self.world.spark, self.files.root)

    def ids(self) -> list[str]:
        return sorted(row.id for row in self.rows().select("id").collect())

    def on_disk(self) -> set[str]:
        found = self.home.glob("day=*/**/*.parquet")
        return {str(each.relative_to(self.home)) for each in found}


@pytest.fixture
def table(world: World) -> Table:
    return Table(world)


def test_by_day_gives_the_utc_day_and_a_gap_that_of_finding_it(spark: SparkSession) -> None:
    late = datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC)
    rows = spark.createDataFrame([("accepted", late), ("gap", None)], "kind string, at timestamp")
    with setting(spark, "spark.sql.session.timeZone", "Asia/Tokyo"):
        found = with_day(rows, date(2026, 3, 5)).select("kind", "day")
        wanted = [("accepted", date(2026, 3, 1)), ("gap", date(2026, 3, 5))]
        assertDataFrameEqual(found, spark.createDataFrame(wanted, "kind string, day date"))


def lags(world: World) -> list[int | None]:
    """How many entries of each shard the table has not read yet, as the store knows it."""
    return [world.store("split", number).stats().journal_lag for number in range(4)]


def test_run_journal_again_adds_what_is_new_and_tells_the_store_how_far_it_is(
    world: World, table: Table
) -> None:
    world.accept("split", *[f"a{number}" for number in range(10)])
    assert lags(world) == [None] * 4
    first = table.run(max_entries_per_trigger=4)
    assert (first.rows, first.batches, first.table_rows) == (10, 3, 10)
    assert lags(world) == [0] * 4
    world.accept("split", "a10")
    assert sorted(lag for lag in lags(world) if lag is not None) == [0, 0, 0, 1]
    world.accept("plain", "b")
    assert table.run().rows == 2
    assert table.run().rows == 0
    assert table.ids() == sorted([f"a{number}" for number in range(11)] + ["b"])
    found = {(row.day, row.route) for row in table.rows().collect()}
    today = datetime.now(UTC).date()
    assert found == {(today, "split"), (today, "plain")}


def test_run_journal_keeps_a_gap_and_says_so(world: World, table: Table) -> None:
    for name in "abc":
        world.schedule("plain", name, at=5)
    world.cut("plain", 1, 2)
    world.deliver("plain", 1)
    done = table.run()
    assert (done.rows, done.gaps, done.lost_entries) == (3, 1, 2)
    assert "1 gaps, 2 entries lost" in str(done)
    found = table.rows()
    assert found.columns == [*JOURNAL.fieldNames(), "day"]
    names = ["kind", "route", "shard", "sequence", "position", "id", "attempt", "lost_entries"]
    assert [tuple(row) for row in found.orderBy("sequence").select(names).collect()] == [
        ("gap", "plain", 0, 1, 0, None, None, 2),
        ("accepted", "plain", 0, 3, 0, "c", None, 0),
        ("delivered", "plain", 0, 4, 0, "a", 1, 0),
    ]


@pytest.mark.long
def test_run_journal_merges_small_files_and_disturbs_no_reader(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "MERGE_FROM_FILES", 3)
    world.accept("plain", *"ab")
    assert table.run(route="plain", max_entries_per_trigger=1).merged_files == 0
    older = table.rows()
    world.accept("plain", *"cd")
    done = table.run(route="plain", max_entries_per_trigger=1)
    assert (done.batches, done.merged_files, done.table_files, done.table_rows) == (2, 3, 2, 4)
    assert older.count() == 2
    assert table.ids() == [*"abcd"]
    assert len(table.on_disk()) == 5
    table.run(route="plain", keep="0ms")
    assert len(table.on_disk()) == 2
    assert table.ids() == [*"abcd"]


@pytest.mark.parametrize("step", ["take_over", "commit", "newest"])
@pytest.mark.parametrize(
    "call", [1, *(pytest.param(call, marks=pytest.mark.long) for call in (2, 3))]
)
def test_batches_killed_at_any_step_and_begun_again_are_in_the_table_once(
    table: Table, monkeypatch: pytest.MonkeyPatch, step: str, call: int
) -> None:
    """The batches are as Spark gives them; merging begins with the second, so it is killed too."""
    monkeypatch.setattr(job, "MERGE_FROM_FILES", 2)
    checkpoint = table.home / "_checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"a query"}')
    with monkeypatch.context() as patched:
        patched.setattr(JournalTable, step, killed_after(getattr(JournalTable, step), call))
        with pytest.raises(Killed):
            add_batches(table)
    add_batches(table)
    assert table.ids() == ["id-0", "id-1"]
    table.files.sweep(0)
    assert table.ids() == ["id-0", "id-1"]
    assert table.on_disk() == {each.path for each in table.files.newest().files}


def add_batches(table: Table) -> None:
    sink = JournalSink(table.world.spark, table.files)
    at = datetime(2026, 3, 1, tzinfo=UTC)
    for number in range(2):
        row = ("accepted", at, "plain", 0, number, 0, f"id-{number}", at, None, None, 0)
        sink.add(table.world.spark.createDataFrame([row], JOURNAL), number)


def killed_after(real: Any, call: int) -> Any:
    """The same, but the call of this number does its work and is killed before it returns."""
    calls: Iterator[int] = iter(range(1, 1_000))

    def step(*given: Any) -> Any:
        done = real(*given)
        if next(calls) == call:
            raise Killed
        return done

    return step


@pytest.mark.long
def test_run_journal_with_another_checkpoint_is_refused(world: World, table: Table) -> None:
    world.accept("plain", "a")
    table.run()
    (table.home / "_checkpoint").rename(world.home / "elsewhere")
    with pytest.raises(PySparkException, match="expected the checkpoint that it was written with"):
        table.run()
    assert table.ids() == ["a"]


def test_read_journal_of_nothing_says_what_was_expected(table: Table) -> None:
    with pytest.raises(ConfigError, match="expected a table that the job journal wrote"):
        table.rows()


def test_small_files_of_a_day_that_is_over_are_merged_to_one() -> None:
    def file(day: int, name: str, size: int = 10) -> DataFile:
        return DataFile(f"day=2026-01-0{day}/route=r/{name}", 1, size)

    big = file(1, "big", 64 * 1024 * 1024)
    old = [file(1, "a"), file(1, "b")]
    new = [file(3, f"n{number}") for number in range(15)]
    assert small_files([*old, big, file(2, "alone"), *new]) == old
    assert small_files([*new, file(3, "n15")]) == [*new, file(3, "n15")]
