"""The job `journal`: the journal into a table, every row once, few files.

    journal of the store ─▶ readStream ─▶ a batch ─▶ TABLE/_aside ─▶ TABLE/day=…/route=… ─▶ manifest
                                                     small files ─▶ one file ─────────────▶ manifest

A batch that runs again finds its number in the manifest and changes nothing; one that was killed
before it had a manifest is written anew. Merging small files is a version of its own.
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
from duebridge_connectors.spark.source.dataframes import activate
from duebridge_connectors.spark.source.datasource import NAME
from duebridge_connectors.spark.source.options import journal_options
from duebridge_connectors.spark.source.planning import (
    StoreAddress,
    load_given_config,
    store_address,
)
from duebridge_connectors.spark.source.schema import JOURNAL

SMALL_BYTES = 32 * 1024 * 1024
MERGE_FROM_FILES = 16  # so many small files of one day and route become one
KEEP = "1h"  # how long a reader may hold a version whose files were merged

_BY = ("day", "route")
_TABLE = StructType([*JOURNAL.fields]).add("day", DateType())


class JournalSummary(msgspec.Struct, frozen=True):
    """What a run added to a table, and what the table has now."""

    table: str
    batches: int = 0
    rows: int = 0
    gaps: int = 0
    lost_entries: int = 0
    merged_files: int = 0
    table_files: int = 0
    table_rows: int = 0

    def __str__(self) -> str:
        """Return one line for people."""
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
    """Add what the journal has by now to a table, exactly once, and return what that was.

    With `every` (as `1m`) it goes on until the query is stopped. `options` are those of the format.
    What goes wrong in a batch is Spark's own exception, and running it again
    goes on where it was.
    """
    place = JournalTable(table)
    place.sweep(parse_duration_ms(keep, "keep"))
    given = {name: str(value) for name, value in options.items()}
    where = journal_options({**given, "stream": "journal"})
    store = store_address(where, load_given_config(where))
    sink = JournalSink(spark, place, on_batch, partial(report_progress, store, place))
    begun_ms = store.now_ms()
    rows = activate(spark).readStream.format(NAME).options(**given, stream="journal").load()
    writer = rows.writeStream.foreachBatch(sink.add).option("checkpointLocation", place.checkpoint)
    query = (
        writer.trigger(processingTime=f"{parse_duration_ms(every, 'every')} milliseconds")
        if every
        else writer.trigger(availableNow=True)
    ).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    if not every:
        place.complete(begun_ms)
    return sink.summary()


def read_journal(spark: SparkSession, table: str) -> DataFrame:
    """Return the newest version of a table, whole, whatever its writer does meanwhile.

    The columns are those of the stream, and `day`. Raises `ConfigError` where there is no table.
    """
    place = JournalTable(table)
    return _read(spark, place, place.existing().files)


def _read(spark: SparkSession, place: JournalTable, files: Iterable[DataFile]) -> DataFrame:
    paths = place.paths(files)
    if not paths:
        return spark.createDataFrame([], _TABLE)
    found = spark.read.schema(_TABLE).option("basePath", place.place).parquet(*paths)
    return found.select(_TABLE.fieldNames())


class JournalSink:
    """Takes the batches of one query."""

    def __init__(
        self,
        spark: SparkSession,
        place: JournalTable,
        on_batch: Callable[[JournalSummary], None] = lambda _: None,
        on_kept: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Call `on_kept` with the number of a batch once it is in the table."""
        self._spark = spark
        self._place = place
        self._on_batch = on_batch
        self._on_kept = on_kept
        self._done = JournalSummary(place.place)

    def add(self, rows: DataFrame, number: int) -> None:
        """Add a batch, unless it is in the table already; then merge what is in small files."""
        before, query = self._place.newest(), self._place.query()
        if before.query not in ("", query):
            raise ConfigError(
                f"{self._place.place}: expected the checkpoint that it was written with"
                f" ({before.query}); got {query}. Put it back, or begin a new table"
            )
        if number <= before.batch:
            return
        now = self._commit(before, query, number, rows)
        self._on_kept(number)
        merged = self._merge(now)
        self._done = msgspec.structs.replace(
            self._done, merged_files=self._done.merged_files + merged
        )
        self._on_batch(self.summary())

    def summary(self) -> JournalSummary:
        """Return what was done so far, and what the table has."""
        files = self._place.newest().files
        return msgspec.structs.replace(
            self._done, table_files=len(files), table_rows=sum(each.rows for each in files)
        )

    def _commit(self, before: Manifest, query: str, number: int, rows: DataFrame) -> Manifest:
        seen = Observation()
        counted = rows.observe(
            seen,
            F.count_if(F.col("kind") == GAP).alias("gaps"),
            F.coalesce(F.sum("lost_entries"), F.lit(0)).alias("lost_entries"),
        )
        # one file a day and route, or some where they are many rows
        files = self._write(with_day(counted, datetime.now(UTC).date()).hint("rebalance", *_BY))
        after = self._place.commit(before.with_batch(query, number, files))
        done = self._done
        self._done = msgspec.structs.replace(
            done,
            batches=done.batches + 1,
            rows=done.rows + sum(each.rows for each in files),
            gaps=done.gaps + seen.get["gaps"],
            lost_entries=done.lost_entries + seen.get["lost_entries"],
        )
        return after

    def _write(self, rows: DataFrame) -> list[DataFile]:
        rows.write.partitionBy(*_BY).mode("overwrite").parquet(self._place.aside)
        return self._place.take_over()

    def _merge(self, now: Manifest) -> int:
        """Merge small files where a day and route has many; returns how many files went."""
        small = small_files(now.files)
        if not small:
            return 0
        merged = self._write(_read(self._spark, self._place, small).repartition(*_BY))
        at_ms = int(datetime.now(UTC).timestamp() * 1000)
        self._place.commit(now.with_merged(small, merged, at_ms))
        return len(small)


def small_files(files: Iterable[DataFile]) -> list[DataFile]:
    """Return the files to merge: of a day that is over all small ones, of the newest day many."""
    found: defaultdict[str, list[DataFile]] = defaultdict(list)
    newest = max((each.day for each in files), default="")
    for each in files:
        if each.size_bytes < SMALL_BYTES:
            found[each.partition].append(each)
    return [
        each
        for group in found.values()
        if len(group) >= (MERGE_FROM_FILES if group[0].day == newest else 2)
        for each in group
    ]


def with_day(rows: DataFrame, found_on: date) -> DataFrame:
    """Add the column `day`: the UTC date of a row; a gap, which has no time, is of `found_on`."""
    # an instant's date is that of the session's time zone; whole days since 1970 are UTC's
    days = F.floor(F.unix_millis("at") / F.lit(86_400_000)).cast("int")
    return rows.withColumn("day", F.coalesce(F.date_from_unix_date(days), F.lit(found_on)))


def report_progress(store: StoreAddress, table: JournalTable, batch: int) -> None:
    """Note in the store what a batch of the table's query reaches; where it is away, the next does.

    It tells people only: what the table has is in its manifests and its checkpoint.
    """
    with suppress(StoreError), store.opened() as connection:
        for name, until in table.reached(batch).items():
            route, _, number = name.rpartition("/")
            Journal(connection, Shard(store.namespace, route, int(number))).note_kept(until)
