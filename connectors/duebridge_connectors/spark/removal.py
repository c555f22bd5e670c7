"""One task of demote: what the cold tier has leaves the store, shard by shard, in its order."""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import TypeAlias

import msgspec
import pyarrow as pa

from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.replies import DemoteReply
from duebridge_connectors.spark.place import Place

CALL_ROWS = 250
Row: TypeAlias = tuple[str, int]  # id and generation


class Removal(msgspec.Struct, frozen=True):
    """What every task needs."""

    place: Place
    shards: Sequence[Shard]
    batch: str
    keep_ms: int


def remove_rows(job: Removal, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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


def _remove(store: DelayStore, batch: str, rows: Iterator[Row]) -> DemoteReply:
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
