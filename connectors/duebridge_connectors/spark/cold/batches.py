"""Batches of cold rows: written and verified, then removed from the store.

rows ─▶ Parquet of a batch, read back by each task ─▶ commit               write_batch
committed rows ─▶ shard by shard, in order ─▶ demote.lua ─▶ commit         finish_batches
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from typing import TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from duebridge.durations import format_ms
from duebridge.errors import JobFailed
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.replies import Demoted
from duebridge_connectors.spark.cold.commit_log import REMOVED, Commit
from duebridge_connectors.spark.cold.parquet_files import (
    WRITTEN,
    ColdBatch,
    write_hours,
)
from duebridge_connectors.spark.cold.tier import Tier, read_cold
from duebridge_connectors.spark.source.planning import StoreAddress
from duebridge_connectors.spark.transforms.cold_copies import KEYS, in_removal_order


def write_batch(tier: Tier, rows: DataFrame, kind: str, batch: str) -> Commit:
    """Write rows (`cold_rows`) as a batch, and return the commit that would make them count.

    Each task reads back what it wrote. Raises `JobFailed` where that was something else, or where
    the driver does not see what tasks have written.
    """
    write = partial(write_hours, ColdBatch(tier.log.root, batch))
    found = {row.file: row.rows for row in rows.mapInArrow(write, WRITTEN).collect()}
    unseen = len({*found} - {*tier.log.written(f"batch={batch}")}) if found else 0
    if unseen:
        expected = "expected a place that the driver and all executors share"
        raise JobFailed(
            f"{tier.log.root}: {expected}; {unseen} files are not seen: nothing is moved"
        )
    total = sum(found.values())
    return Commit(
        kind=kind, batch=batch, at_ms=tier.now_ms(), rows=total, files=tuple(sorted(found))
    )


def finish_batches(spark: SparkSession, tier: Tier) -> list[Commit]:
    """Remove from the store what committed batches have; returns what was done, a batch each.

    Any number of jobs may do this at once, and be killed: no row is removed or judged twice.
    """
    return [_finish(spark, tier, batch) for batch in tier.log.state().unfinished]


def _finish(spark: SparkSession, tier: Tier, batch: Commit) -> Commit:
    age_ms = tier.now_ms() - batch.at_ms
    if age_ms >= tier.route.max_delay:  # the store has forgotten what was done of it
        text = f"expected to be finished within max_delay; it was begun {format_ms(age_ms)} ago"
        raise JobFailed(f"batch {batch.batch} of {tier.log.root}: {text}")
    job = RemovalJob(tier.place, tier.shards, batch.batch, tier.route.max_delay)
    keys = in_removal_order(read_cold(spark, tier, batch.files, KEYS))
    counts = keys.mapInArrow(partial(remove_rows, job), "done long, removed long, void long")
    total = counts.groupBy().sum().collect()[0]
    done, removed, void = (int(each or 0) for each in total)
    if done != batch.rows:
        raise JobFailed(f"batch {batch.batch}: expected {batch.rows} rows to be done; got {done}")
    finished = Commit(
        kind=REMOVED,
        batch=batch.batch,
        at_ms=tier.now_ms(),
        rows=done,
        removed=removed,
        void=void,
    )
    tier.log.commit(finished)
    return finished


CALL_ROWS = 250
Row: TypeAlias = tuple[str, int]  # id and generation


class RemovalJob(msgspec.Struct, frozen=True):
    """What every task needs."""

    place: StoreAddress
    shards: Sequence[Shard]
    batch: str
    keep_ms: int


def remove_rows(job: RemovalJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Remove rows of shard, id and generation, and yield for each shard how far its batch is."""
    rows = (
        row
        for batch in batches
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    with job.place.opened() as connection:
        for number, of_shard in groupby(rows, key=lambda row: row[0]):
            store = DelayStore(
                connection,
                job.shards[number],
                cold_tier_ms=job.keep_ms,
                repeat_for_s=job.place.repeat_for_s,
            )
            far = _remove(
                store, job.batch, ((name, generation) for _, name, generation in of_shard)
            )
            counts = {"done": [far.done], "removed": [far.removed], "void": [far.void]}
            yield pa.RecordBatch.from_pydict(counts)


def _remove(store: DelayStore, batch: str, rows: Iterator[Row]) -> Demoted:
    """Go on where the batch is; another job may do the same at this moment, ahead of us or not."""
    far = store.demote(batch, 0, [])
    call: list[Row] = []
    skip = far.done
    while True:
        call += islice(rows, skip, skip + CALL_ROWS - len(call))
        if not call:
            return far
        now = store.demote(batch, far.done, call)
        moved = now.done - far.done
        far, skip, call = now, max(0, moved - len(call)), call[moved:]
