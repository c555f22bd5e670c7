"""Batch and stream reader of the journal: every transition of an envelope, exactly once.

A batch is a range of entry numbers of each shard (`journal.offset`). Entries removed between
planning and reading fail the batch: it may have been written before, so it must not shrink.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from duebridge.admin.events import GAP
from duebridge.errors import JobFailed
from duebridge.ports.publisher import reason_word
from duebridge.store.journal import Journal, JournalEnd
from duebridge.store.keys import Shard
from duebridge.store.wire.journal_entry import EntryColumns
from duebridge_connectors.spark.rows.arrow import arrow_schema, column_batch, record_batch
from duebridge_connectors.spark.rows.schema import JOURNAL, RANGES
from duebridge_connectors.spark.source.journal.offset import (
    START_AGAIN,
    Ends,
    JournalEnds,
    JournalRange,
    Offset,
    ShardOffset,
    named_shard,
    planned,
    ranges_between,
    shard_name,
)
from duebridge_connectors.spark.source.message_first import message_first
from duebridge_connectors.spark.source.options import JournalOptions
from duebridge_connectors.spark.source.planning import StoreAddress, shards_to_read
from duebridge_connectors.spark.source.pushdown import push

BATCH_ROWS = 8192  # of an Arrow batch


class _RangeReader:
    """What the batch and the stream reader share; `_goes_on`: batches follow one another."""

    _goes_on = False

    def __init__(
        self, options: JournalOptions, address: StoreAddress, shards: Sequence[Shard]
    ) -> None:
        self._options = options
        self._address = address
        self._shards = shards
        self._target: Ends | None = None

    @property
    def namespace(self) -> str:
        """The namespace of the store that it reads."""
        return self._address.namespace

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, or what range it is.

        Entries cut since planning raise `JobFailed`, or become a gap row.
        """
        if not isinstance(partition, JournalRange):  # Spark asks for one even if there is none
            return
        if self._options.content == "ranges":
            yield record_batch(arrow_schema(RANGES), [partition.row()])
            return
        with message_first():
            leaves_lost = self._goes_on and self._options.on_trim == "gap"
            yield from _read(self._address, partition, self._options.on_trim, leaves_lost)

    def _ends(self, start: Offset | None = None) -> Ends:
        """Return the ends of all journals; raises `StoreError` for one that went back."""
        with self._address.connect() as connection:
            return {
                shard: JournalEnds.of(
                    Journal(connection, shard), ShardOffset.of(start or {}, shard)
                )
                for shard in self._shards
            }

    def _end_offset(self) -> Offset:
        return {shard_name(shard): ends.offset(ends.last) for shard, ends in self._ends().items()}


class JournalBatchReader(_RangeReader, DataSourceReader):
    """Reader of `spark.read` with stream=journal: the journals as they are now."""

    def partitions(self) -> list[JournalRange]:
        """Return the ranges of all entries present, and a gap for those cut before."""
        return ranges_between(self._shards, {}, self._end_offset())


class FilteringJournalReader(JournalBatchReader):
    """A reader for Spark where it pushes filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Leave out the shards that a filter excludes."""
        pushed = push(filters, ("route", "shard"))
        self._shards = pushed.shards(self._shards)
        return pushed.rest


class JournalStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of `spark.readStream`."""

    _goes_on = True

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset at which a new query starts."""
        if self._options.start == "earliest":
            return {shard_name(shard): ShardOffset().values() for shard in self._shards}
        return {
            shard_name(shard): ShardOffset(ends.last + 1, ends.last, epoch=ends.epoch).values()
            for shard, ends in self._ends().items()
        }

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a micro-batch, in entries."""
        most = self._options.max_entries_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the present ends of the journals as the end of the query."""
        self._target = self._ends()

    @message_first()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next batch; raises `StoreError` if a journal went back."""
        if self._target is None:
            self._follow_routes()
            return planned(start, self._ends(start), limit)
        target = self._target
        found = {shard: ends.up_to(target[shard].last) for shard, ends in self._ends(start).items()}
        return planned(start, found, limit)

    def _follow_routes(self) -> None:
        """Add the routes that were first used after the query began, where it reads all routes."""
        if not self._options.route:
            present = shards_to_read(self._address, ())
            self._shards = list(dict.fromkeys([*self._shards, *present]))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """Return the newest offset, for the query's progress."""
        return self._end_offset()

    def partitions(self, start: Offset, end: Offset) -> list[JournalRange]:
        """Return the ranges of a batch; equal offsets give equal ranges."""
        shards = [named_shard(self.namespace, name) for name in end]
        return ranges_between(shards, start, end)

    def commit(self, end: Offset) -> None:
        """Do nothing: the journal's cap alone decides what is kept."""

    def stop(self) -> None:
        """Do nothing: no connection stays open."""


def _read(
    address: StoreAddress, partition: JournalRange, on_trim: str, leaves_lost: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield a range's rows; `leaves_lost`: what a failover lost of it is the next batch's gap."""
    schema = arrow_schema(JOURNAL)
    if partition.lost:
        yield record_batch(schema, [_gap(partition.shard, partition.after, partition.lost)])
        return
    read, rows = partition.after, _Rows(schema, partition.shard)
    with address.connect_task() as connection:
        journal = Journal(connection, partition.shard)
        for entry in journal.columns(read, partition.until):
            sequence = entry.head.sequence
            yield from _missing(schema, partition, read, sequence, on_trim)
            read = sequence
            if rows.add(entry) >= BATCH_ROWS:
                yield rows.taken()
        end = journal.end()
    _check_life(end, partition)
    last = max(read, _kept(end, partition.until)) if leaves_lost else partition.until
    yield from _missing(schema, partition, read, last + 1, on_trim)
    yield rows.taken()


def _kept(end: JournalEnd, until: int) -> int:
    """Return the newest number up to `until` that no failover has lost, renewed or not."""
    return min(end.last, end.numbering.kept(until))


def _check_life(end: JournalEnd, there: JournalRange) -> None:
    """Raise `JobFailed` if what was read may be of another life than was planned."""
    if there.epoch and end.epoch != there.epoch:
        raise JobFailed(
            f"journal {shard_name(there.shard)}: expected entries {there.after + 1} to"
            f" {there.until}, as planned; the route was purged meanwhile. {START_AGAIN}"
        )


def _missing(
    schema: pa.Schema, there: JournalRange, read: int, sequence: int, on_trim: str
) -> Iterator[pa.RecordBatch]:
    """Account for entries missing between the last one read and the next one."""
    lost = sequence - read - 1
    if not lost:
        return
    if on_trim == "fail":
        raise JobFailed(
            f"journal {shard_name(there.shard)}: expected entries {there.after + 1} to"
            f" {there.until}, as planned; {lost} after {read} were cut meanwhile. To continue"
            " without them, restart with option onTrim=gap: a gap row takes their place"
        )
    yield record_batch(schema, [_gap(there.shard, read, lost)])


class _Rows:
    """The rows of several entries: an Arrow batch for each entry costs more than its rows."""

    def __init__(self, schema: pa.Schema, shard: Shard) -> None:
        self._schema, self._shard = schema, shard
        self._entries: list[EntryColumns] = []
        self._count = 0

    def add(self, entry: EntryColumns) -> int:
        """Add an entry; return how many rows wait."""
        self._entries.append(entry)
        self._count += len(entry.ids)
        return self._count

    def taken(self) -> pa.RecordBatch:
        """Return the rows that wait as a batch, and begin with the next."""
        entries, count = self._entries, self._count
        self._entries, self._count = [], 0
        heads = [(entry.head, len(entry.ids)) for entry in entries]
        columns = {
            "kind": _repeated((head.kind, rows) for head, rows in heads),
            "at": _repeated((head.at_ms or None, rows) for head, rows in heads),
            "lost_entries": 0,
            "route": self._shard.route,
            "shard": self._shard.number,
            "sequence": _repeated((head.sequence, rows) for head, rows in heads),
            "position": [*chain.from_iterable(range(rows) for _, rows in heads)],
            "id": [*chain.from_iterable(entry.ids for entry in entries)],
            "due_at": [due or None for entry in entries for due in entry.due_at_ms],
            "attempt": [*chain.from_iterable(entry.attempts for entry in entries)],
            "reason": [
                None if of is None else reason_word(of) for entry in entries for of in entry.reasons
            ],
        }
        return column_batch(self._schema, count, columns)


def _repeated(values: Iterable[tuple[Any, int]]) -> list[Any]:
    return [*chain.from_iterable(repeat(value, times) for value, times in values)]


def _gap(shard: Shard, after: int, lost: int) -> tuple[Any, ...]:
    return (GAP, None, shard.route, shard.number, after + 1, 0, None, None, None, None, lost)
