"""The job `journal`: appends the journal to a table, every row once, in few files.

    journal of the store ─▶ readStream ─▶ a batch ─▶ TABLE/_aside ─▶ TABLE/day=…/route=… ─▶ manifest
                                                     small files ─▶ one file ─────────────▶ manifest

A repeated batch finds its number in the manifest and changes nothing; a batch killed before its
manifest is written again. Merging small files makes a version of its own.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import partial

import msgspec
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import DateType, StructType

from duebridge.admin.events import GAP
from duebridge.durations import parse_duration_ms
from duebridge.errors import ConfigError, StoreError
from duebridge.store.journal import Journal
from duebridge.store.keys import Shard
from duebridge_connectors.spark.jobs.journal_table import DataFile, JournalTable, Manifest
from duebridge_connectors.spark.source.dataframes import run_query, stream_journal
from duebridge_connectors.spark.source.options import journal_options
from duebridge_connectors.spark.source.planning import StoreAddress, given_store
from duebridge_connectors.spark.source.schema import JOURNAL

SMALL_BYTES = 32 * 1024 * 1024
MERGE_FROM_FILES = 16  # small files of one day and route, from which on they are merged
KEEP = "1h"  # how long merged files stay, for readers of an older version

_BY = ("day", "route")
_TABLE = StructType([*JOURNAL.fields]).add("day", DateType())


class JournalSummary(msgspec.Struct, frozen=True):
    """What a run added to a table, and the size of the table."""

    table: str
    batches: int = 0
    rows: int = 0
    gaps: int = 0
    lost_entries: int = 0
    merged_files: int = 0
    table_files: int = 0
    table_rows: int = 0

    def __str__(self) -> str:
        gaps = f"; {self.gaps} gaps, {self.lost_entries:,} entries lost" if self.gaps else ""
        return (
            f"{self.table}: {self.rows:,} rows in {self.batches} batches{gaps};"
            f" the table has {self.table_rows:,} rows in {self.table_files:,} files"
        )


def run_journal(
    spark: SparkSession,
    table: str,
    *,
    every: str | None = None,
    keep: str = KEEP,
    on_batch: Callable[[JournalSummary], None] = lambda _: None,
    **options: str | int,
) -> JournalSummary:
    """Append the present journal to a table, exactly once, and return the counts.

    With `every` (as `1m`) it continues until the query is stopped. `options` are those of the
    format. A failed batch raises Spark's own exception; a further run continues there.
    """
    target = JournalTable(table)
    target.sweep(parse_duration_ms(keep, "keep"))
    given = {name: str(value) for name, value in options.items()}
    parsed = journal_options({**given, "stream": "journal"})
    address = given_store(parsed)
    sink = JournalSink(spark, target, on_batch, partial(report_progress, address, target))
    begun_ms = address.now_ms()
    writer = stream_journal(spark, **given).writeStream.foreachBatch(sink.add)
    run_query(writer.option("checkpointLocation", target.checkpoint), every or None)
    if not every:
        target.complete(begun_ms)
    return sink.summary()


def read_journal(spark: SparkSession, table: str) -> DataFrame:
    """Return the newest version of a table, unaffected by a concurrent writer.

    The columns are those of the stream, and `day`. Raises `ConfigError` if there is no table.
    """
    source = JournalTable(table)
    return _read(spark, source, source.existing().files)


def _read(spark: SparkSession, table: JournalTable, files: Iterable[DataFile]) -> DataFrame:
    paths = table.paths(files)
    if not paths:
        return spark.createDataFrame([], _TABLE)
    found = spark.read.schema(_TABLE).option("basePath", table.root).parquet(*paths)
    return found.select(_TABLE.fieldNames())


class JournalSink:
    """Appends the batches of one query to a table."""

    def __init__(
        self,
        spark: SparkSession,
        table: JournalTable,
        on_batch: Callable[[JournalSummary], None] = lambda _: None,
        on_commit: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Call `on_commit` with the number of each batch that is in the table."""
        self._spark = spark
        self._table = table
        self._on_batch = on_batch
        self._on_commit = on_commit
        self._done = JournalSummary(table.root)

    def add(self, rows: DataFrame, number: int) -> None:
        """Append a batch unless the table has it already; then merge small files."""
        before, query = self._table.newest(), self._table.query()
        if before.query not in ("", query):
            raise ConfigError(
                f"{self._table.root}: expected the checkpoint that it was written with"
                f" ({before.query}); got {query}. Restore it, or start a new table"
            )
        if number <= before.batch:
            return
        now = self._commit(before, query, number, rows)
        self._on_commit(number)
        merged = self._merge(now)
        self._done = msgspec.structs.replace(
            self._done, merged_files=self._done.merged_files + merged
        )
        self._on_batch(self.summary())

    def summary(self) -> JournalSummary:
        """Return the counts so far, and the size of the table."""
        files = self._table.newest().files
        return msgspec.structs.replace(
            self._done, table_files=len(files), table_rows=sum(file.rows for file in files)
        )

    def _commit(self, before: Manifest, query: str, number: int, rows: DataFrame) -> Manifest:
        seen = Observation()
        counted = rows.observe(
            seen,
            F.count_if(F.col("kind") == GAP).alias("gaps"),
            F.coalesce(F.sum("lost_entries"), F.lit(0)).alias("lost_entries"),
        )
        # one file per day and route, or several for many rows
        files = self._write(with_day(counted, datetime.now(UTC).date()).hint("rebalance", *_BY))
        after = self._table.commit(before.with_batch(query, number, files))
        done = self._done
        self._done = msgspec.structs.replace(
            done,
            batches=done.batches + 1,
            rows=done.rows + sum(file.rows for file in files),
            gaps=done.gaps + seen.get["gaps"],
            lost_entries=done.lost_entries + seen.get["lost_entries"],
        )
        return after

    def _write(self, rows: DataFrame) -> list[DataFile]:
        rows.write.partitionBy(*_BY).mode("overwrite").parquet(self._table.aside)
        return self._table.take_over()

    def _merge(self, now: Manifest) -> int:
        """Merge small files of days and routes with many; return how many were replaced."""
        small = small_files(now.files)
        if not small:
            return 0
        merged = self._write(_read(self._spark, self._table, small).repartition(*_BY))
        at_ms = int(datetime.now(UTC).timestamp() * 1000)
        self._table.commit(now.with_merged(small, merged, at_ms))
        return len(small)


def small_files(files: Iterable[DataFile]) -> list[DataFile]:
    """Return the files to merge: all small ones of past days, many of the newest day."""
    found: defaultdict[str, list[DataFile]] = defaultdict(list)
    newest = max((file.day for file in files), default="")
    for file in files:
        if file.size_bytes < SMALL_BYTES:
            found[file.partition].append(file)
    return [
        file
        for group in found.values()
        if len(group) >= (MERGE_FROM_FILES if group[0].day == newest else 2)
        for file in group
    ]


def with_day(rows: DataFrame, found_on: date) -> DataFrame:
    """Add the column `day`: the UTC date of a row; `found_on` for a gap, which has no time."""
    # to_date would use the session's time zone; whole days since 1970 are UTC
    days = F.floor(F.unix_millis("at") / F.lit(86_400_000)).cast("int")
    return rows.withColumn("day", F.coalesce(F.date_from_unix_date(days), F.lit(found_on)))


def report_progress(address: StoreAddress, table: JournalTable, batch: int) -> None:
    """Write to the store how far the table has the journal, so that workers expose the lag.

    Informative only, and skipped while the store is unreachable: the next batch repeats it.
    """
    with suppress(StoreError), address.connect() as connection:
        for name, until in table.reached(batch).items():
            route, _, number = name.rpartition("/")
            Journal(connection, Shard(address.namespace, route, int(number))).note_kept(until)
