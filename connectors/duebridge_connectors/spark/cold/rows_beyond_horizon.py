"""Packs rows due beyond the horizon for the cold tier, bypassing the store.

A row is far only if the store would accept it unchanged; doubtful rows go to the store, which
refuses them with a reason. One function splits the rows, so each is in exactly one half. Delays
count from the start of the job.
"""

from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import msgspec
import pyarrow as pa

from duebridge.durations import parse_duration_ms
from duebridge.envelope import Instant
from duebridge.errors import EnvelopeError
from duebridge.store.routing import shard_number
from duebridge.store.wire.packed_row import PackedRow
from duebridge_connectors.spark.cold.tier import Tier
from duebridge_connectors.spark.rows.arrow import arrow_schema, instants_ms, record_batch, values
from duebridge_connectors.spark.rows.packing import Packer
from duebridge_connectors.spark.rows.schema import COLD
from duebridge_connectors.spark.source.planning import WriteJob


class Content(NamedTuple):
    """An id with one of its contents."""

    id: str
    content_hash: bytes


class DirectDemote(msgspec.Struct, frozen=True):
    """A split of rows, as every task receives it: the instants are the same for all tasks."""

    tier: Tier
    write: WriteJob
    now_ms: int
    boundary_ms: int
    batch: str

    def resolved(self, given: Instant | None) -> int:
        """Return an instant of a packed row as epoch ms; 0 for none."""
        if given is None:
            return 0
        return self.now_ms + given.ms if given.relative else given.ms


def far_rows(job: DirectDemote, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the far rows as rows of the cold tier, with a generation taken by this task.

    It is taken before the rows count: later cancels bind the rows, earlier ones do not.
    """
    schema, packer, shards = arrow_schema(COLD), job.write.packer(), job.tier.shards
    with job.tier.notes() as notes:
        generations: dict[int, int] = {}
        for batch in batches:
            rows = []
            for row in filter(None, _far(job, packer, batch)):
                shard = shard_number(row.id, len(shards))
                if shard not in generations:
                    generations[shard] = notes[shard].new_generation()
                rows.append(_cold(job, row, shard, generations[shard]))
            yield record_batch(schema, rows)


def near_rows(job: DirectDemote, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all other rows, unchanged."""
    return _chosen(partial(_far, job, job.write.packer()), batches, lambda row: row is None)


def cancelled_rows(
    job: DirectDemote, cancelled: Collection[Content], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the near rows that have the id and content of a cold one that was cancelled.

    The store would take them for ids that are used anew: it has no content to compare.
    """
    return _chosen(_packed_of(job, cancelled), batches, lambda row: _content(row) in cancelled)


def other_rows(
    job: DirectDemote, cancelled: Collection[Content], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the near rows that `cancelled_rows` leaves out."""
    return _chosen(_packed_of(job, cancelled), batches, lambda row: _content(row) not in cancelled)


def known_rows(
    job: DirectDemote, ids: Collection[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the far rows of these ids, unchanged."""
    pack = partial(_far, job, job.write.packer())
    return _chosen(pack, batches, lambda row: row is not None and row.id in ids)


def _chosen(
    pack: Callable[[pa.RecordBatch], list[PackedRow | None]],
    batches: Iterator[pa.RecordBatch],
    is_wanted: Callable[[PackedRow | None], bool],
) -> Iterator[pa.RecordBatch]:
    """Yield rows, unchanged, by what `pack` has for each."""
    for batch in batches:
        wanted = [is_wanted(row) for row in pack(batch)]
        yield batch.filter(pa.array(wanted, pa.bool_()))


def _far(job: DirectDemote, packer: Packer, batch: pa.RecordBatch) -> list[PackedRow | None]:
    """Return the far rows of a batch packed, and None for all others."""
    last_ms = job.now_ms + job.tier.route.max_delay
    is_far = [job.boundary_ms <= due <= last_ms for due in _dues_ms(job, batch)]
    rows = _packed(packer, batch, is_far)
    return [row if row and _may_be_delivered(job, row) else None for row in rows]


def _packed_of(
    job: DirectDemote, contents: Collection[Content]
) -> Callable[[pa.RecordBatch], list[PackedRow | None]]:
    """Return what packs the rows of a batch that have these ids, and has None for all others."""
    packer, ids = job.write.packer(), {each.id for each in contents}
    return lambda batch: _packed(packer, batch, [each in ids for each in packer.ids(batch)])


def _packed(packer: Packer, batch: pa.RecordBatch, is_wanted: list[bool]) -> list[PackedRow | None]:
    rows = iter(packer.pack(batch.filter(pa.array(is_wanted, pa.bool_()))).rows)
    return [next(rows) if wanted else None for wanted in is_wanted]


def _dues_ms(job: DirectDemote, batch: pa.RecordBatch) -> list[int]:
    """Return the due instants of rows, epoch ms; 0 if unknown."""
    pairs = zip(instants_ms(batch, "due_at"), values(batch, "delay"), strict=True)
    return [_after(job, delay) if at is None else at for at, delay in pairs]


def _after(job: DirectDemote, delay: str | timedelta | None) -> int:
    try:
        return 0 if delay is None else job.now_ms + parse_duration_ms(delay)
    except EnvelopeError:
        return 0


def _content(row: PackedRow | None) -> Content | None:
    return row and Content(row.id, row.content_hash)


def _may_be_delivered(job: DirectDemote, row: PackedRow) -> bool:
    return not row.expires or job.resolved(row.expires) > job.resolved(row.due)


def _cold(job: DirectDemote, row: PackedRow, shard: int, generation: int) -> tuple[object, ...]:
    due_ms, expires_ms = job.resolved(row.due), job.resolved(row.expires)
    life = (due_ms, job.now_ms, expires_ms, row.remember_ms, generation)
    return (row.id, job.batch, shard, *life, row.content_hash, row.blob)
