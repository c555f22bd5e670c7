"""The job journal: every row once in a Delta table, whatever is killed; gaps kept."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from duebridge.errors import ConfigError
from duebridge.store.journal import Journal
from duebridge.store.keys import Shard
from duebridge_connectors.spark.jobs import journal as job
from duebridge_connectors.spark.jobs.journal import (
    JournalSink,
    JournalSummary,
    read_journal,
    run_journal,
)
from duebridge_connectors.spark.rows.schema import JOURNAL, RANGES
from duebridge_connectors.spark.source.journal.offset import JournalRange
from duebridge_connectors.spark.table.journal_files import ROWS_SCHEMA, by_day
from duebridge_connectors.spark.table.journal_table import JournalTable, JournalVersion
from tests.spark.by_hand import journal_by_hand
from tests.spark.cold_route import Killed
from tests.spark.journal.journal_by_hand import ids
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
        return ids(str(self.home))

    def known(self) -> tuple[int, list[str]]:
        """Until when the table says that it has everything, and what it has."""
        return self.files.existing().complete_until_ms, self.ids()


@pytest.fixture
def table(world: World) -> Table:
    return Table(world)


def test_by_day_gives_the_utc_day_whatever_the_zone_and_a_gap_that_of_finding_it() -> None:
    late = datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC)
    rows = [{"kind": "accepted", "at": late, "id": "a"}, {"kind": "gap", "at": None}]
    in_tokyo = ROWS_SCHEMA.set(1, pa.field("at", pa.timestamp("us", "Asia/Tokyo")))
    batch = pa.RecordBatch.from_pylist(rows, in_tokyo)
    found = {day: part["kind"].to_pylist() for day, part in by_day(batch, date(2026, 3, 5))}
    assert found == {date(2026, 3, 1): ["accepted"], date(2026, 3, 5): ["gap"]}


def utc_day(at: datetime) -> date:
    return datetime.fromtimestamp(at.timestamp(), UTC).date()


def lags(world: World) -> list[int | None]:
    """How many entries of each shard the table has not read yet, as the store knows it."""
    return [world.store("split", number).stats().journal_lag for number in range(4)]


def test_run_journal_again_adds_what_is_new_and_tells_the_store_how_far_it_is(
    world: World, table: Table
) -> None:
    world.accept("split", *[f"a{number}" for number in range(10)])
    assert lags(world) == [None] * 4
    complete: list[tuple[int, list[str]]] = []
    first = table.run(max_entries_per_trigger=4, on_batch=lambda _: complete.append(table.known()))
    assert (first.rows, first.batches, first.table_rows) == (10, 3, 10)
    assert lags(world) == [0] * 4
    times = {row.id: int(row.at.timestamp() * 1000) for row in table.rows().collect()}
    for until_ms, known in complete:
        assert {name for name, at_ms in times.items() if at_ms < until_ms} <= set(known)
    assert [until_ms > 0 for until_ms, _ in complete] == [True] * 3
    assert complete[-1][0] > max(times.values())
    world.accept("split", "a10")
    assert sorted(lag for lag in lags(world) if lag is not None) == [0, 0, 0, 1]
    world.accept("plain", "b")
    assert table.run().rows == 2
    assert table.files.existing().complete_until_ms > complete[-1][0]
    world.accept("plain", "c")
    (unread,) = Journal(world.connection, world.store("plain").shard).read(1, 2)
    assert table.run(route="split").rows == 0
    assert table.files.existing().complete_until_ms <= unread.at_ms
    assert table.run().rows == 1
    assert table.run().rows == 0
    assert table.ids() == sorted([f"a{number}" for number in range(11)] + ["b", "c"])
    rows = table.rows().collect()
    assert {row.route for row in rows} == {"split", "plain"}
    assert [row.day for row in rows] == [utc_day(row.at) for row in rows]


def test_run_journal_keeps_a_gap_and_says_so(world: World, table: Table) -> None:
    for name in "abc":
        world.schedule("plain", name, at=5)
    world.cut("plain", 1, 2)
    world.deliver("plain", 1)
    began = datetime.now(UTC).date()
    with setting(world.spark, "spark.sql.session.timeZone", "Asia/Tokyo"):
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
    gap, *others = found.orderBy("sequence").collect()
    assert began <= gap.day <= datetime.now(UTC).date(), "the day of finding it"
    assert [row.day for row in others] == [utc_day(row.at) for row in others]


@pytest.mark.parametrize("step", ["begun", "files_written", "commit"])
@pytest.mark.parametrize("call", [1, 2])
def test_batches_killed_at_any_step_and_begun_again_are_in_the_table_once(
    table: Table, monkeypatch: pytest.MonkeyPatch, step: str, call: int
) -> None:
    """The batches are as Spark gives them."""
    for number in range(2):
        table.world.accept("plain", f"id-{number}")
    leave_checkpoint(table, "a query")
    places: dict[str, tuple[Any, str]] = {
        "begun": (JournalTable, "begun"),
        "files_written": (job, "_written"),
        "commit": (JournalVersion, "commit"),
    }
    with monkeypatch.context() as patched:
        place, name = places[step]
        patched.setattr(place, name, killed_after(getattr(place, name), call))
        with pytest.raises(Killed):
            add_batches(table)
    add_batches(table)
    assert table.ids() == ["id-0", "id-1"]
    assert table.files.existing().batch("a query") == 1


def leave_checkpoint(table: Table, query: str) -> None:
    checkpoint = table.home / "_checkpoint"
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text(f'{{"id":"{query}"}}')


def add_batches(table: Table) -> None:
    for number in range(2):
        add_planned(table, number, number, number + 1)


def add_planned(table: Table, number: int, after: int, until: int) -> None:
    """Add a batch of entries `after` + 1 to `until`; the checkpoint has its plan by then."""
    offsets = table.home / "_checkpoint" / "offsets"
    offsets.mkdir(exist_ok=True)
    (offsets / str(number)).write_text(f'v1\n{{}}\n{{"plain/0":[1,{until},"E"]}}')
    entries = JournalRange(Shard(table.world.namespace, "plain", 0), after, until, 0)
    ranges = table.world.spark.createDataFrame([entries.row()], RANGES)
    JournalSink(table.files, journal_by_hand(table.world)).add(ranges, number)


def test_batch_of_a_checkpoint_that_was_restored_fails_and_skips_no_entry(table: Table) -> None:
    table.world.accept("plain", "a")
    table.world.accept("plain", "b")
    leave_checkpoint(table, "a query")
    add_batches(table)
    table.world.accept("plain", "c")
    for number in (0, 1):  # as planned anew from a copy that was older by so many batches
        with pytest.raises(ConfigError, match="expected the checkpoint as it was at batch 1"):
            add_planned(table, number, number, 3)
    with pytest.raises(ConfigError, match="expected the checkpoint as it was at batch 1"):
        add_planned(table, 2, 1, 3)
    with pytest.raises(ConfigError, match="expected a checkpoint that has batch 9"):
        table.files.offset(9)
    assert table.ids() == ["a", "b"]
    add_planned(table, 1, 1, 2)
    add_planned(table, 2, 2, 3)
    assert table.ids() == ["a", "b", "c"]


def test_batch_on_a_table_without_numbers_of_shards_follows_its_last_one(table: Table) -> None:
    """As a version wrote it that kept the number of the batch alone."""
    for name in "ab":
        table.world.accept("plain", name)
    leave_checkpoint(table, "a query")
    table.files.begun("a query").commit("a query", 0, [])
    add_batches(table)
    assert table.ids() == ["b"]
    with pytest.raises(ConfigError, match="expected the checkpoint as it was at batch 1"):
        add_planned(table, 1, 1, 3)


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
