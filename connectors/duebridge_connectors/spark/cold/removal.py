"""Removal of the rows of a batch from the store, once their files are committed.

committed rows ─▶ shard by shard, in order ─▶ demote.lua ─▶ commit
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from duebridge.durations import format_ms
from duebridge.errors import JobFailed
from duebridge.store.batching import CALL_ROWS
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.wire.replies import DemoteReply
from duebridge_connectors.spark.cold.commit_log import REMOVED, Commit
from duebridge_connectors.spark.cold.tier import Tier, read_cold
from duebridge_connectors.spark.source.planning import StoreAddress
from duebridge_connectors.spark.transforms.cold_copies import KEYS, in_removal_order


def finish_batches(spark: SparkSession, tier: Tier) -> list[Commit]:
    """Remove from the store the envelopes of all unfinished batches; return a commit for each.

    Several jobs may run this at once, or be killed: no row is removed or judged twice, however
    late. What is due before a hydrate's end stays in the store.
    """
    return [_finish(spark, tier, batch) for batch in tier.log.state().unfinished]


def _finish(spark: SparkSession, tier: Tier, batch: Commit) -> Commit:
    _check_progress(tier, batch)
    job = RemovalJob(tier.address, tier.shards, batch.batch, tier.route.max_delay)
    keys = in_removal_order(read_cold(spark, tier, batch.files, KEYS), len(tier.shards))
    counts = keys.mapInArrow(partial(remove_rows, job), "rows long, removed long, void long")
    total = counts.groupBy().sum().collect()[0]
    rows, removed, void = (int(count or 0) for count in total)
    if rows != batch.rows:
        raise JobFailed(f"batch {batch.batch}: expected {batch.rows} rows to be done; got {rows}")
    finished = Commit(
        kind=REMOVED, batch=batch.batch, at_ms=tier.now_ms(), rows=rows, removed=removed, void=void
    )
    tier.log.commit(finished)
    return finished


def _check_progress(tier: Tier, batch: Commit) -> None:
    """Raise `JobFailed` if the store may have forgotten which rows of a batch it removed."""
    age_ms = tier.now_ms() - batch.at_ms
    if batch.keeps_progress or age_ms < tier.route.max_delay:
        return
    with tier.notes() as shards:
        if not all(shard.has_progress(batch.batch) for shard in shards):
            text = f"expected to be finished within max_delay; it started {format_ms(age_ms)} ago"
            raise JobFailed(f"batch {batch.batch} of {tier.log.root}: {text}")


RemovalKey: TypeAlias = tuple[str, int]  # id and generation


class RemovalJob(msgspec.Struct, frozen=True):
    """A batch to remove from the store, as every task receives it."""

    address: StoreAddress
    shards: Sequence[Shard]
    batch: str
    keep_ms: int


def remove_rows(job: RemovalJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Remove rows of shard, id and generation; yield the totals of the batch for each shard."""
    rows = SortedRows(batches)
    with job.address.connect() as connection:
        for number, shard_rows in groupby(rows, key=itemgetter(0)):
            store = job.address.delay_store(connection, job.shards[number], job.keep_ms)
            keys = ((name, generation) for _, name, generation in shard_rows)
            total = _remove(store, job.batch, keys)
            counts = {"removed": [total.removed], "void": [total.void]}
            yield pa.RecordBatch.from_pydict({"rows": [rows.taken()], **counts})


class SortedRows:
    """Rows, each once: to the store, a row that comes again is a void copy."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._read = 0

    def __iter__(self) -> Iterator[tuple[int, str, int]]:
        before = None
        for batch in self._batches:
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                self._read += 1
                if row != before:
                    yield row
                before = row

    def taken(self) -> int:
        """Return how many rows were read since the last call, with those that came twice."""
        read, self._read = self._read, 0
        return read


def _remove(store: DelayStore, batch: str, rows: Iterator[RemovalKey]) -> DemoteReply:
    """Continue where the batch stands; another job may be doing the same concurrently."""
    total = store.demote(batch, 0, [])
    call: list[RemovalKey] = []
    skip = total.done
    while True:
        call += islice(rows, skip, skip + CALL_ROWS - len(call))
        if not call:
            return total
        now = store.demote(batch, total.done, call)
        moved = now.done - total.done
        total, skip, call = now, max(0, moved - len(call)), call[moved:]
