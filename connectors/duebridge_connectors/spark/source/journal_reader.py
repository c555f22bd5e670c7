"""The stream reader of the journal: what became of which envelope, exactly once.

An offset says for each shard up to which number it is read, and where that batch began:

    {"reminders/0": [first, until], ...}    first: the oldest entry there was when it was planned

Numbers are dense. So what the cap had cut before a batch was planned is known by then, and is a row
of kind `gap`; what it cuts between plan and reading makes the batch fail: it must not shrink, since
it may have been written once already.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from duebridge.admin.events import GAP
from duebridge.errors import JobFailed, StoreError
from duebridge.ports.publisher import reason_word
from duebridge.store.journal import Journal, JournalEntry
from duebridge.store.keys import Shard
from duebridge_connectors.spark.source.arrow import arrow_schema, record_batch
from duebridge_connectors.spark.source.options import JournalOptions
from duebridge_connectors.spark.source.planning import StoreAddress
from duebridge_connectors.spark.source.schema import JOURNAL

TASK_ENTRIES = 256  # of up to 1,000 rows each

Offset: TypeAlias = dict[str, list[int]]
_BEGINNING = [1, 0]


@dataclass(frozen=True)
class JournalRange(InputPartition):
    """Entries behind `after` up to `until`; `lost` of them, the first ones, were cut before."""

    shard: Shard
    after: int
    until: int
    lost: int


class JournalEnds(NamedTuple):
    """The numbers of the oldest entry that there is, and of the newest that there ever was."""

    first: int
    last: int


class JournalBatchReader(DataSourceReader):
    """Of `spark.read` with stream=journal: the journals as they are now."""

    def __init__(
        self, options: JournalOptions, place: StoreAddress, shards: Sequence[Shard]
    ) -> None:
        self._place = place
        self._shards = shards
        self._options = options

    def partitions(self) -> list[JournalRange]:
        """Return the ranges that hold every entry there is, and a gap for those cut before."""
        end = {
            _name(shard): [ends.first, ends.last]
            for shard, ends in _ends(self._place, self._shards).items()
        }
        return _ranges(self._shards, {}, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a range; raises `JobFailed` or, with on_trim=gap, has a gap row instead."""
        return _read(self._place, partition, self._options.on_trim)


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Of `spark.readStream`."""

    def __init__(
        self, options: JournalOptions, place: StoreAddress, shards: Sequence[Shard]
    ) -> None:
        self._options = options
        self._place = place
        self._shards = shards
        self._target: dict[Shard, JournalEnds] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a new query begins."""
        if self._options.start == "earliest":
            return {_name(shard): _BEGINNING for shard in self._shards}
        found = _ends(self._place, self._shards)
        return {_name(shard): [ends.last + 1, ends.last] for shard, ends in found.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a micro-batch, in entries."""
        most = self._options.max_entries_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take what is there now for the end of the query."""
        self._target = _ends(self._place, self._shards)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next batch; raises `StoreError` where the journal went back."""
        found = _ends(self._place, self._shards)
        for shard, ends in found.items():
            _check_went_on(shard, _until(start, shard), ends)
        if self._target is not None:
            found = {
                shard: JournalEnds(ends.first, self._target[shard].last)
                for shard, ends in found.items()
            }
        return _planned(start, found, limit)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """Return the newest there is, for the query's progress."""
        found = _ends(self._place, self._shards)
        return {_name(shard): [*ends] for shard, ends in found.items()}

    def partitions(self, start: Offset, end: Offset) -> list[JournalRange]:
        """Return the ranges of a batch; the same for the same offsets, always."""
        return _ranges(self._shards, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a range; raises `JobFailed` or, with on_trim=gap, has a gap row instead."""
        return _read(self._place, partition, self._options.on_trim)

    def commit(self, end: Offset) -> None:
        """Do nothing: the journal's own cap decides what is kept."""

    def stop(self) -> None:
        """Do nothing: no connection is kept."""


def _name(shard: Shard) -> str:
    return f"{shard.route}/{shard.number}"


def _until(offset: Mapping[str, list[int]], shard: Shard) -> int:
    return offset.get(_name(shard), _BEGINNING)[1]


def _ends(place: StoreAddress, shards: Sequence[Shard]) -> dict[Shard, JournalEnds]:
    with place.opened() as connection:
        journals = {shard: Journal(connection, shard) for shard in shards}
        # the newest first: an entry that comes in between is of the next batch
        lasts = {shard: journal.last() for shard, journal in journals.items()}
        return {
            shard: JournalEnds(min(journal.first(), lasts[shard] + 1), lasts[shard])
            for shard, journal in journals.items()
        }


def _check_went_on(shard: Shard, until: int, ends: JournalEnds) -> None:
    if ends.last < until:
        raise StoreError(
            f"journal {_name(shard)}: expected entry {until}, which is read, or newer; it ends with"
            f" {ends.last}: the store was emptied, or lost its newest writes in a failover."
            " Begin anew with another checkpoint"
        )


def _planned(start: Offset, found: Mapping[Shard, JournalEnds], limit: ReadLimit) -> Offset:
    """Return the end of a batch: what is new, shared out between shards where that is too much."""
    begins = {
        shard: max(_until(start, shard), min(ends.first - 1, ends.last))
        for shard, ends in found.items()
    }
    waiting = {shard: max(0, ends.last - begins[shard]) for shard, ends in found.items()}
    most = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(waiting.values())
    shares = _shares(waiting, most)
    planned = dict(start)
    for shard, ends in found.items():
        until = begins[shard] + shares[shard]
        if until > _until(start, shard):
            planned[_name(shard)] = [ends.first, until]
    return planned


def _shares(waiting: Mapping[Shard, int], most: int) -> dict[Shard, int]:
    """Return how much of what waits each shard may have: equal parts, what one leaves to others."""
    shares: dict[Shard, int] = {}
    left = most
    for place, (shard, count) in enumerate(sorted(waiting.items(), key=lambda each: each[1])):
        shares[shard] = min(count, -(-left // (len(waiting) - place)))
        left -= shares[shard]
    return shares


def _ranges(shards: Sequence[Shard], start: Offset, end: Offset) -> list[JournalRange]:
    ranges: list[JournalRange] = []
    for shard in shards:
        first, until = end.get(_name(shard), _BEGINNING)
        after = _until(start, shard)
        lost = min(max(0, first - 1 - after), until - after)
        if lost:
            ranges.append(JournalRange(shard, after, after + lost, lost))
        for begin in range(after + lost, until, TASK_ENTRIES):
            ranges.append(JournalRange(shard, begin, min(until, begin + TASK_ENTRIES), 0))
    return ranges


def _read(place: StoreAddress, partition: InputPartition, on_trim: str) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, JournalRange):  # Spark asks for one where there is none
        return
    schema = arrow_schema(JOURNAL)
    if partition.lost:
        yield record_batch(schema, [_gap(partition.shard, partition.after, partition.lost)])
        return
    read = partition.after
    with place.opened() as connection:
        for entry in Journal(connection, partition.shard).read(read, partition.until):
            yield from _missing(schema, partition, read, entry.sequence, on_trim)
            read = entry.sequence
            yield record_batch(schema, list(_rows(partition.shard, entry)))
    yield from _missing(schema, partition, read, partition.until + 1, on_trim)


def _missing(
    schema: pa.Schema, planned: JournalRange, read: int, sequence: int, on_trim: str
) -> Iterator[pa.RecordBatch]:
    """Account for entries that are gone between the last that was read and the next one."""
    lost = sequence - read - 1
    if not lost:
        return
    if on_trim == "fail":
        raise JobFailed(
            f"journal {_name(planned.shard)}: expected entries {planned.after + 1} to"
            f" {planned.until}, as planned; {lost} behind {read} were cut meanwhile. To go on"
            " without them, restart with option on_trim=gap: a gap row takes their place"
        )
    yield record_batch(schema, [_gap(planned.shard, read, lost)])


def _rows(shard: Shard, entry: JournalEntry) -> Iterator[tuple[Any, ...]]:
    for position, (envelope_id, note) in enumerate(entry.items):
        yield (
            entry.kind,
            entry.at_ms,
            shard.route,
            shard.number,
            entry.sequence,
            position,
            envelope_id,
            note.due_at_ms,
            note.attempt,
            None if note.reason is None else reason_word(note.reason),
            0,
        )


def _gap(shard: Shard, after: int, lost: int) -> tuple[Any, ...]:
    place = (shard.route, shard.number, after + 1, 0)
    return (GAP, None, *place, None, None, None, None, lost)
