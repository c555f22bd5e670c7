"""Transforms of rows on the way to the cold tier and back."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.config.models import HOUR_MS
from duebridge_connectors.spark.rows.schema import COLD, PACKED_COLUMNS

HOUR, PART = "hour", "part"  # columns that tasks share rows by: since the epoch, and of an id
PARTS = 4  # of an hour: what is due at nine o'clock is not one task's
COPY = ["batch", "id", "generation"]  # the key of a copy
PULLED = [*COPY, "due_at_ms"]  # of a row that returned before its file did
KEYS = ["shard", "id", "generation"]  # the key of an envelope in the store


def as_held(rows: DataFrame, route: str) -> DataFrame:
    """Return rows of the tier with the columns of the store's reader, in the state `cold`."""
    return rows.select(
        F.lit(route).alias("route"),
        "id",
        F.lit("cold").alias("state"),
        F.timestamp_millis("due_at_ms").alias("waits_for"),
        F.timestamp_millis("scheduled_at_ms").alias("scheduled_at"),
    )


def batch_rows(rows: DataFrame, batch: str, same: Sequence[str] = COLD.names) -> DataFrame:
    """Return rows of the tier as a batch, sorted for `parquet.files.write_files`.

    Of rows with the same values in `same`, which are due in the same hour, one is in it.
    """
    hour = F.floor(F.col("due_at_ms") / HOUR_MS).alias(HOUR)
    part = F.pmod(F.hash("id"), F.lit(PARTS)).alias(PART)
    parted = rows.withColumn("batch", F.lit(batch)).select(*COLD.names, hour, part)
    once = parted.repartition(HOUR, PART).dropDuplicates([*same, HOUR, PART])
    return once.sortWithinPartitions("due_at_ms", "id")


def in_removal_order(rows: DataFrame, shards: int) -> DataFrame:
    """Return `KEYS` as removal needs them: each shard in its own partition, in a fixed order."""
    return rows.repartitionById(shards, "shard").sortWithinPartitions(*KEYS)


def moved_forward(rows: DataFrame, moved: DataFrame) -> DataFrame:
    """Return the rows that a reschedule applies to; `moved` has id, left_at and cancelled."""
    bound = (rows.generation <= moved.left_at) & (rows.generation > moved.cancelled)
    return rows.join(moved, (rows.id == moved.id) & bound, "left_semi")


def cancelled_rows(rows: DataFrame, marks: DataFrame) -> DataFrame:
    """Return the rows that a cancel binds."""
    bound = marks.where("cancelled > 0").select("id", "cancelled")
    return rows.join(
        bound, (rows.id == bound.id) & (rows.generation <= bound.cancelled), "left_semi"
    )


def without_ended(rows: DataFrame, marks: DataFrame) -> DataFrame:
    """Return the rows that are neither void nor ended because their ids began a new life."""
    rows = exclude(rows, marks.where("batch != ''"), ["batch", "id"])
    ended = marks.where("ended > 0").select("id", "ended")
    is_over = (rows.id == ended.id) & (rows.generation <= ended.ended)
    return rows.join(ended, is_over, "left_anti")


def exclude(rows: DataFrame, others: DataFrame, keys: list[str]) -> DataFrame:
    """Return the rows whose keys the others do not have."""
    return rows.join(others, keys, "left_anti")


def writer_rows(rows: DataFrame) -> DataFrame:
    """Return cold rows as the data source accepts them."""
    due, expires = F.col("due_at_ms").alias("due_at"), F.col("expires_at_ms").alias("expires_at")
    same = [name for name in PACKED_COLUMNS if name in COLD.names]
    return rows.select(*same, due, expires)
