"""Rebuilds what the store knows of the cold ids, from the files.

still cold rows ─┬─ their ids ─▶ a new filter in each shard, sized by their number
                 ├─ the lowest generation ─▶ the floor: the store refuses rows below it
                 └─ marks without any of them ─▶ dropped
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.store.batching import in_calls
from duebridge.store.cold.lease import ColdLease
from duebridge.store.keys import Shard
from duebridge_connectors.spark.cold.commit_log import SIFTED, Commit
from duebridge_connectors.spark.cold.tier import (
    ColdMarks,
    Tier,
    drop_marks,
    new_generations,
    read_cold,
    read_marks,
    read_still_cold,
)
from duebridge_connectors.spark.source.planning import StoreAddress
from duebridge_connectors.spark.transforms.cold_copies import COPY, KEYS, exclude

WORD_BITS, BITS_AN_ID = 32, 14  # of a full filter: one id of 90 is taken for cold and is not
LEAST_IDS = 10_000
ROOM = 2  # of a new filter, for what goes cold until the next
MOST_UNUSED = 1000  # marks beyond twice those that the last rebuild kept


class MarkJob(msgspec.Struct, frozen=True):
    """Ids to mark, as every task receives them; `is_next`: in the filter that is rebuilt."""

    address: StoreAddress
    shards: Sequence[Shard]
    lease: str
    is_next: bool


def mark_batch(spark: SparkSession, tier: Tier, batch: Commit, lease: ColdLease) -> list[str]:
    """Mark the ids of a batch that never was in the store, before its commit.

    Return those that live in the store: their rows will not come back.
    """
    rows = read_cold(spark, tier, batch.files, KEYS)
    return _mark(rows, MarkJob(tier.address, tier.shards, lease.token, is_next=False))


def sift_if_worn(
    spark: SparkSession, tier: Tier, lease: ColdLease, *, marks: int = 0, coming: int = 0
) -> bool:
    """Rebuild filter and floor if too many marks are unused, or there is no room for more ids.

    Without a filter there is no room; `coming` rows are about to go cold.
    """
    with tier.notes() as shards:
        filters = [shard.filter() for shard in shards]
    a_shard = -(-coming // len(tier.shards))
    is_full = any(
        (each.marked + a_shard) * BITS_AN_ID >= each.words * WORD_BITS for each in filters
    )
    if is_full or marks > 2 * sum(each.kept for each in filters) + MOST_UNUSED:
        sift(spark, tier, lease, a_shard)
        return True
    return False


def sift(spark: SparkSession, tier: Tier, lease: ColdLease, coming: int = 0) -> None:
    """Rebuild the filter and the floor, and drop the marks that no row of the files needs.

    The filter has room for the ids of the files, `coming` ones a shard, and as many again.

    Marks are read before the files: so every mark that is dropped was left before, and its row, if
    there was one, is counted by then. The files are read once more when the new filter has begun:
    a demote that ran meanwhile has marked its rows in the old one alone.
    """
    began = new_generations(tier)
    marks = read_marks(tier, began)
    sizes = _counts(_cold_rows(spark, tier))
    with tier.notes() as shards:
        for number, shard in enumerate(shards):
            bits = BITS_AN_ID * max(LEAST_IDS, ROOM * (sizes.of(number) + coming))
            shard.store.begin_sift(bits // WORD_BITS, began[number], lease.token)
    # Who lost the lease cannot commit rows from here on: the filter would not have their ids.
    tier.log.commit(Commit(kind=SIFTED, batch="", at_ms=tier.now_ms()), lease.check)
    rows = _cold_rows(spark, tier).persist()
    try:
        lowest = _counts(rows).lowest
        _mark(rows, MarkJob(tier.address, tier.shards, lease.token, is_next=True))
        unused = _unused(spark, rows, marks)
        with tier.notes() as shards:
            for number, shard in enumerate(shards):
                floor = min(lowest.get(number, began[number]), began[number])
                shard.store.end_sift(floor, lease.token)
                shard.note_kept(len(marks.of(number)) - sum(n == number for n, _ in unused))
        drop_marks(tier, marks, unused, lease.token)
    finally:
        rows.unpersist()


def _cold_rows(spark: SparkSession, tier: Tier) -> DataFrame:
    return read_still_cold(spark, tier, [*COPY, "shard"])


class _Counts(NamedTuple):
    """By shard number: cold rows, and their lowest generation."""

    rows: dict[int, int]
    lowest: dict[int, int]

    def of(self, number: int) -> int:
        return self.rows.get(number, 0)


def _counts(rows: DataFrame) -> _Counts:
    totals = rows.groupBy("shard").agg(F.count("*"), F.min("generation")).collect()
    return _Counts({row[0]: row[1] for row in totals}, {row[0]: row[2] for row in totals})


def _unused(spark: SparkSession, rows: DataFrame, marks: ColdMarks) -> list[tuple[int, str]]:
    """Return shard and name of the marks that bind no row."""
    if not marks.found:
        return []
    frame = marks.frame(spark)
    void = exclude(frame.where("batch != ''"), rows, ["batch", "id"])
    bound = exclude(frame.where("batch = ''"), rows, ["id"])
    return [(row.shard, row.name) for row in void.unionByName(bound).collect()]


def _mark(rows: DataFrame, job: MarkJob) -> list[str]:
    found = rows.select(*KEYS).mapInArrow(partial(mark_rows, job), "id string").collect()
    return [row.id for row in found]


def mark_rows(job: MarkJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Mark the ids of rows of shard, id and generation; yield those whose rows are void."""
    with job.address.connect() as connection:
        for batch in batches:
            by_shard: dict[int, list[tuple[str, int]]] = {}
            columns = (column.to_pylist() for column in batch.columns)
            for number, name, generation in zip(*columns, strict=True):
                by_shard.setdefault(number, []).append((name, generation))
            for number, found in by_shard.items():
                store = job.address.delay_store(connection, job.shards[number])
                for call in in_calls(found):
                    lowest = None if job.is_next else min(generation for _, generation in call)
                    void = store.mark([name for name, _ in call], lowest, job.lease)
                    yield pa.RecordBatch.from_pydict({"id": pa.array(void, pa.string())})
