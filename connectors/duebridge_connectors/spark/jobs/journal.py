"""The job `journal`: appends the journal to a Delta table, every row once.

    readStream ─▶ a batch: ranges of entries ─▶ tasks: journal of the store ─▶ files by day
                                                  driver: one commit ◀─┘

A task reads entries and writes files in one Python process: to hand rows to Spark in between takes
twice the CPU of both.
A repeated batch finds its number in the table and changes nothing; one of a checkpoint that is not
where the table is fails. Files of a batch that was killed before its commit are named by nobody,
and the job tidy removes them.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from functools import partial

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from duebridge_connectors.spark.files.location import FileLocation, Stores
from duebridge_connectors.spark.session import check_delta_reader
from duebridge_connectors.spark.source.dataframes import run_query, stream_journal
from duebridge_connectors.spark.source.journal.offset import JournalRange
from duebridge_connectors.spark.source.journal.reader import JournalStreamReader
from duebridge_connectors.spark.source.options import journal_options
from duebridge_connectors.spark.source.planning import given_store
from duebridge_connectors.spark.table.journal_files import WRITTEN, JournalFile, write_days
from duebridge_connectors.spark.table.journal_landed import take_over
from duebridge_connectors.spark.table.journal_progress import JournalProgress
from duebridge_connectors.spark.table.journal_table import (
    JournalTable,
    JournalVersion,
    shard_numbers,
)


class JournalSummary(msgspec.Struct, frozen=True):
    """What a run added to a table, and the size of the table."""

    table: str
    batches: int = 0
    rows: int = 0
    gaps: int = 0
    lost_entries: int = 0
    table_files: int = 0
    table_rows: int = 0

    def __str__(self) -> str:
        gaps = f"; {self.gaps} gaps, {self.lost_entries:,} entries lost" if self.gaps else ""
        return (
            f"{self.table}: {self.rows:,} rows in {self.batches} batches{gaps};"
            f" the table has {self.table_rows:,} rows in {self.table_files:,} files"
        )

    def with_batch(self, files: Iterable[JournalFile]) -> "JournalSummary":
        """Return the counts with one more batch."""
        found = list(files)
        return msgspec.structs.replace(
            self,
            batches=self.batches + 1,
            rows=self.rows + sum(file.rows for file in found),
            gaps=self.gaps + sum(file.gaps for file in found),
            lost_entries=self.lost_entries + sum(file.lost_entries for file in found),
        )


def run_journal(
    spark: SparkSession,
    table: str,
    *,
    every: str | None = None,
    takes_over: bool = False,
    on_batch: Callable[[JournalSummary], None] = lambda _: None,
    **options: str | int,
) -> JournalSummary:
    """Append the present journal to a table, exactly once, and return the counts.

    With `every` (as `1m`) it continues until the query is stopped. With `takes_over` a table of
    duebridge 0.2.0 becomes a Delta table first. `options` are those of the format. A failed batch
    raises Spark's own exception; a further run continues there.
    """
    given = {name: str(value) for name, value in options.items()}
    parsed = journal_options({**given, "stream": "journal", "content": "entries"})
    target = JournalTable(Stores.of_file(parsed.config).place(table))
    if takes_over:
        take_over(target)
    target.check_taken_over()
    address = given_store(parsed)
    progress = JournalProgress(address, parsed.route, target)
    sink = JournalSink(target, JournalStreamReader(parsed, address, ()), on_batch, progress)
    ranges = stream_journal(spark, **{**given, "content": "ranges"})
    writer = ranges.writeStream.foreachBatch(sink.add)
    run_query(writer.option("checkpointLocation", target.checkpoint), every or None)
    if not every:
        ended = target.begun(target.query())
        ended.complete(progress.complete_until_ms(ended.batch(target.query())))
    return sink.summary()


def read_journal(spark: SparkSession, table: FileLocation | str) -> DataFrame:
    """Return a table, at each action its newest version.

    The columns are those of the stream, and `day`. Raises `ConfigError` if there is no table, or
    if the session lacks Delta's reader.
    """
    found = JournalTable(table)
    found.existing()
    return _delta_reader(spark).load(found.root)


def read_version(spark: SparkSession, table: JournalTable, version: JournalVersion) -> DataFrame:
    """Return a version of a table, whatever is added to it; else as `read_journal`."""
    return _delta_reader(spark).option("versionAsOf", version.number).load(table.root)


def _delta_reader(spark: SparkSession) -> DataFrameReader:
    check_delta_reader(spark)
    return spark.read.format("delta")


class JournalSink:
    """Appends the batches of one query, which are ranges of entries, to a table."""

    def __init__(
        self,
        table: JournalTable,
        reader: JournalStreamReader,
        on_batch: Callable[[JournalSummary], None] = lambda _: None,
        progress: JournalProgress | None = None,
    ) -> None:
        self._table = table
        self._reader = reader
        self._on_batch = on_batch
        self._progress = progress
        self._done = JournalSummary(table.root)

    def add(self, ranges: DataFrame, number: int) -> None:
        """Append a batch unless the table has it already.

        Raises `ConfigError` where the checkpoint is not at the place of the table.
        """
        query = self._table.query()
        before = self._table.begun(query)
        if not self._table.lacks(before, number, self._reader.namespace):
            return
        files = _written(self._table.place, self._reader, ranges)
        until_ms = self._progress.complete_until_ms(number) if self._progress else 0
        reached = shard_numbers(self._reader.namespace, self._table.offset(number))
        before.commit(query, number, files, until_ms, reached)
        self._done = self._done.with_batch(files)
        if self._progress:
            self._progress.note(number)
        self._on_batch(self.summary())

    def summary(self) -> JournalSummary:
        """Return the counts so far, and the size of the table."""
        now = self._table.existing()
        return msgspec.structs.replace(self._done, table_files=now.files, table_rows=now.rows)


def _written(
    root: FileLocation, reader: JournalStreamReader, ranges: DataFrame
) -> list[JournalFile]:
    """Write rows to files by tasks, one for each core at most: each writes a file of its own."""
    tasks = ranges.sparkSession.sparkContext.defaultParallelism
    copy = partial(copy_ranges, reader, root, datetime.now(UTC).date())
    written = ranges.coalesce(tasks).mapInArrow(copy, WRITTEN).collect()
    return [msgspec.convert(row.asDict(), JournalFile) for row in written]


def copy_ranges(
    reader: JournalStreamReader,
    root: FileLocation,
    found_on: date,
    ranges: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Read the entries of ranges, and write them as `write_days`; raises as the reader."""
    return write_days(root, found_on, read_ranges(reader, ranges))


def read_ranges(
    reader: JournalStreamReader, ranges: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the entries of ranges (`RANGES`); raises as the reader."""
    found = (JournalRange.of(row) for batch in ranges for row in batch.to_pylist())
    return (rows for each in found for rows in reader.read(each))
