"""Batch and stream reader of the journal: every transition of an envelope, exactly once.

An offset holds two entry numbers of each shard, and two of each jump before them:

    {"reminders/0": [first, until, found, next, ...], ...}

first: the oldest entry at planning; until: the last; found and next: the last number that a renewal
found, and the number of its own entry (`duebridge.store.numbering`).

Entry numbers have no other holes. Entries that the cap removed before planning are therefore known,
and become a row of kind `gap`, as those do that were read and that the store lost in a failover.
Entries removed between planning and reading fail the batch: it may have been written before, so it
must not shrink.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

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
from duebridge.errors import JobFailed, StoreError
from duebridge.ports.publisher import reason_word
from duebridge.store.journal import Journal
from duebridge.store.keys import Shard
from duebridge.store.numbering import Jump, Numbering
from duebridge.store.wire.journal_columns import EntryColumns
from duebridge_connectors.spark.rows.arrow import arrow_schema, column_batch, record_batch
from duebridge_connectors.spark.rows.schema import JOURNAL
from duebridge_connectors.spark.source.message_first import message_first
from duebridge_connectors.spark.source.options import JournalOptions
from duebridge_connectors.spark.source.planning import StoreAddress
from duebridge_connectors.spark.source.pushdown import push

TASK_ENTRIES = 256  # of up to 1,000 rows each
BATCH_ROWS = 8192  # of an Arrow batch

Offset: TypeAlias = dict[str, list[int]]
Ends: TypeAlias = "dict[Shard, JournalEnds]"
_BEGINNING = [1, 0]


@dataclass(frozen=True)
class JournalRange(InputPartition):
    """Entries `after` + 1 to `until`, or a gap of `lost` entries there."""

    shard: Shard
    after: int
    until: int
    lost: int


class JournalEnds(NamedTuple):
    """The numbers of the oldest entry present, and of the newest ever written."""

    first: int
    last: int
    numbering: Numbering

    def offset(self, until: int) -> list[int]:
        """Return the offset of a shard that is read up to a number."""
        jumps = [jump for jump in self.numbering.jumps if jump.first <= until]
        return [self.first, until, *chain.from_iterable(jumps)]


class _RangeReader:
    """What the batch and the stream reader share."""

    def __init__(
        self, options: JournalOptions, address: StoreAddress, shards: Sequence[Shard]
    ) -> None:
        self._options = options
        self._address = address
        self._shards = shards
        self._target: dict[Shard, JournalEnds] | None = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a range; entries cut since planning raise `JobFailed`, or become a gap row."""
        with message_first():
            yield from _read(self._address, partition, self._options.on_trim)

    def _ends(self, start: Mapping[str, list[int]] = MappingProxyType({})) -> Ends:
        """Return the ends of all journals; raises `StoreError` for one that went back."""
        with self._address.connect() as connection:
            journals = {shard: Journal(connection, shard) for shard in self._shards}
            # newest first: an entry added meanwhile belongs to the next batch
            ends = {shard: journal.end() for shard, journal in journals.items()}
            for shard, journal in journals.items():
                _check_went_on(journal, _until(start, shard), ends[shard].last)
            return {
                shard: JournalEnds(min(journal.first(), ends[shard].last + 1), *ends[shard])
                for shard, journal in journals.items()
            }

    def _end_offset(self) -> Offset:
        return {_name(shard): ends.offset(ends.last) for shard, ends in self._ends().items()}


class JournalBatchReader(_RangeReader, DataSourceReader):
    """Reader of `spark.read` with stream=journal: the journals as they are now."""

    def partitions(self) -> list[JournalRange]:
        """Return the ranges of all entries present, and a gap for those cut before."""
        return _ranges(self._shards, {}, self._end_offset())


class FilteringJournalReader(JournalBatchReader):
    """A reader for Spark where it pushes filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Leave out the shards that a filter excludes."""
        pushed = push(filters, ("route", "shard"))
        self._shards = [
            shard
            for shard in self._shards
            if pushed.has("route", shard.route) and pushed.has("shard", shard.number)
        ]
        return pushed.rest


class JournalStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of `spark.readStream`."""

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset at which a new query starts."""
        if self._options.start == "earliest":
            return {_name(shard): _BEGINNING for shard in self._shards}
        found = self._ends()
        return {_name(shard): [ends.last + 1, ends.last] for shard, ends in found.items()}

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
        found = self._ends(start)
        if self._target is not None:
            found = {
                shard: ends._replace(last=self._target[shard].last) for shard, ends in found.items()
            }
        return _planned(start, found, limit)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """Return the newest offset, for the query's progress."""
        return self._end_offset()

    def partitions(self, start: Offset, end: Offset) -> list[JournalRange]:
        """Return the ranges of a batch; equal offsets give equal ranges."""
        return _ranges(self._shards, start, end)

    def commit(self, end: Offset) -> None:
        """Do nothing: the journal's cap alone decides what is kept."""

    def stop(self) -> None:
        """Do nothing: no connection stays open."""


def _name(shard: Shard) -> str:
    return f"{shard.route}/{shard.number}"


def _until(offset: Mapping[str, list[int]], shard: Shard) -> int:
    return offset.get(_name(shard), _BEGINNING)[1]


def _check_went_on(journal: Journal, until: int, last: int) -> None:
    """After a failover wait for the renewal, which goes on beyond every number."""
    if last < until and not journal.awaits_renewal():
        raise StoreError(
            f"journal {_name(journal.shard)}: expected to end with entry {until}, the last read, or"
            f" newer; got {last}: the store was emptied, or an older duebridge went on after a"
            " failover. Start again with another checkpoint"
        )


def _planned(start: Offset, found: Mapping[Shard, JournalEnds], limit: ReadLimit) -> Offset:
    """Return the end of a batch: all new entries, or shares of the limit for each shard."""
    begins = {
        shard: max(_until(start, shard), min(ends.first - 1, ends.last))
        for shard, ends in found.items()
    }
    waiting = {
        shard: ends.numbering.count(begins[shard], ends.last) for shard, ends in found.items()
    }
    most = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(waiting.values())
    shares = _shares(waiting, most)
    planned = dict(start)
    for shard, ends in found.items():
        until = ends.numbering.advanced(begins[shard], ends.last, shares[shard])
        if until > _until(start, shard):
            planned[_name(shard)] = ends.offset(until)
    return planned


def _shares(waiting: Mapping[Shard, int], most: int) -> dict[Shard, int]:
    """Divide a limit equally among shards; the unused part of a share goes to the others."""
    shares: dict[Shard, int] = {}
    left = most
    for rank, (shard, count) in enumerate(sorted(waiting.items(), key=itemgetter(1))):
        shares[shard] = min(count, -(-left // (len(waiting) - rank)))
        left -= shares[shard]
    return shares


def _ranges(shards: Sequence[Shard], start: Offset, end: Offset) -> list[JournalRange]:
    ranges: list[JournalRange] = []
    for shard in shards:
        first, until, *flat = end.get(_name(shard), _BEGINNING)
        numbering = Numbering(map(Jump, flat[::2], flat[1::2]))
        after = _until(start, shard)
        begin = max(after, min(first - 1, until))
        if lost := numbering.count(after, begin) + numbering.lost(after, until):
            ranges.append(JournalRange(shard, after, begin, lost))
        for span in numbering.spans(begin, until):
            for at in range(span.after, span.until, TASK_ENTRIES):
                ranges.append(JournalRange(shard, at, min(span.until, at + TASK_ENTRIES), 0))
    return ranges


def _read(
    address: StoreAddress, partition: InputPartition, on_trim: str
) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, JournalRange):  # Spark asks for a partition even if there is none
        return
    schema = arrow_schema(JOURNAL)
    if partition.lost:
        yield record_batch(schema, [_gap(partition.shard, partition.after, partition.lost)])
        return
    read, rows = partition.after, _Rows(schema, partition.shard)
    with address.connect_task() as connection:
        for entry in Journal(connection, partition.shard).columns(read, partition.until):
            sequence = entry.head.sequence
            yield from _missing(schema, partition, read, sequence, on_trim)
            read = sequence
            if rows.add(entry) >= BATCH_ROWS:
                yield rows.taken()
    yield from _missing(schema, partition, read, partition.until + 1, on_trim)
    yield rows.taken()


def _missing(
    schema: pa.Schema, planned: JournalRange, read: int, sequence: int, on_trim: str
) -> Iterator[pa.RecordBatch]:
    """Account for entries missing between the last one read and the next one."""
    lost = sequence - read - 1
    if not lost:
        return
    if on_trim == "fail":
        raise JobFailed(
            f"journal {_name(planned.shard)}: expected entries {planned.after + 1} to"
            f" {planned.until}, as planned; {lost} after {read} were cut meanwhile. To continue"
            " without them, restart with option onTrim=gap: a gap row takes their place"
        )
    yield record_batch(schema, [_gap(planned.shard, read, lost)])


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
