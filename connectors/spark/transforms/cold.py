"""Rows on their way to the cold tier and back."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from bridge.config import HOUR_MS
from connectors.spark.schema import COLD, PACKED_COLUMNS

HOUR = ["due_date", "due_hour"]
COPY = ["batch", "id", "generation"]
_DAY_MS = 24 * HOUR_MS


def as_cold(packed: DataFrame) -> DataFrame:
    """Return what was read from the store, without what could not be read, as the tier has it.

    Instants are epoch ms: Spark's own would be of a form that Arrow does not compare.
    """
    instants = {f"{name}_ms": F.unix_millis(name) for name in ("due_at", "scheduled_at")}
    expires = F.coalesce(F.unix_millis("expires_at"), F.lit(0))
    there = packed.where(F.col("blob").isNotNull())
    return there.withColumns({**instants, "expires_at_ms": expires, "batch": F.lit("")})


def as_held(rows: DataFrame, route: str) -> DataFrame:
    """Return rows of the tier as the store's reader gives what it holds, in the state `cold`."""
    return rows.select(
        F.lit(route).alias("route"),
        "id",
        F.lit("cold").alias("state"),
        F.timestamp_millis("due_at_ms").alias("waits_for"),
        F.timestamp_millis("scheduled_at_ms").alias("scheduled_at"),
    )


def cold_rows(rows: DataFrame, batch: str) -> DataFrame:
    """Return rows of the tier as a batch of their own, all of an hour in one part, each row once.

    The store's reader may give a row again where a page's last id is gone; a copy that came twice
    would be void the second time.
    """
    due_ms = F.col("due_at_ms")
    return (
        rows.withColumn("batch", F.lit(batch))
        .select(
            *COLD.names,
            F.date_from_unix_date(F.floor(due_ms / _DAY_MS).cast("int")).alias("due_date"),
            F.floor(F.pmod(due_ms, F.lit(_DAY_MS)) / HOUR_MS).cast("int").alias("due_hour"),
        )
        .repartition(*HOUR)
        .distinct()
    )


def footprint() -> list[Column]:
    """Return what tells whether rows arrived whole: their count, and a sum of their hashes."""
    hashes = F.xxhash64(*COLD.names).cast("decimal(20,0)")
    return [F.count(F.lit(1)).alias("rows"), F.sum(hashes).cast("string").alias("checksum")]


def in_order(rows: DataFrame) -> DataFrame:
    """Return what removal needs of a batch: every shard in one part, in an order of its own."""
    keys = rows.select("shard", "id", "generation").repartition("shard")
    return keys.sortWithinPartitions("shard", "id", "generation")


def moved_forward(rows: DataFrame, moved: DataFrame) -> DataFrame:
    """Return the rows that a reschedule binds: `moved` has id, left_at and cancelled."""
    bound = (rows.generation <= moved.left_at) & (rows.generation > moved.cancelled)
    return rows.join(moved, (rows.id == moved.id) & bound, "left_semi")


def without(rows: DataFrame, others: DataFrame, keys: list[str]) -> DataFrame:
    """Return the rows that the others do not name."""
    return rows.join(others, keys, "left_anti")


def writable(rows: DataFrame) -> DataFrame:
    """Return cold rows as the data source takes them."""
    due, expires = F.col("due_at_ms").alias("due_at"), F.col("expires_at_ms").alias("expires_at")
    same = [name for name in PACKED_COLUMNS if name in COLD.names]
    return rows.select(*same, due, expires)
