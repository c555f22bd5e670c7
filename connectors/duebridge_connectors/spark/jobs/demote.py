"""The job `demote`: moves envelopes due beyond the horizon from the store to Parquet files.

store: pending, due beyond the horizon
  │  a task reads a slice, and writes it, in one Python process; read back, counted, compared
  ▼
Parquet of a new batch ─▶ rebuild the filter of the cold ids if it has no room for them
  │
  ▼
commit: the copies are complete
  │  demote.lua: unchanged envelopes leave; the copy of one that changed, or is due soon, is void
  ▼
commit: the copies count ─▶ merge and delete a few files
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from duebridge.errors import JobFailed
from duebridge.store.cold.lease import ColdLease
from duebridge_connectors.spark.cold.batches import commit_of
from duebridge_connectors.spark.cold.commit_log import DEMOTED, Commit
from duebridge_connectors.spark.cold.filter_rebuild import sift_if_worn
from duebridge_connectors.spark.cold.parquet.files import WRITTEN, ColdBatch, write_files
from duebridge_connectors.spark.cold.removal import finish_batches
from duebridge_connectors.spark.cold.sweep import check_recent
from duebridge_connectors.spark.cold.tier import Tier, new_batch, open_tier
from duebridge_connectors.spark.jobs.tidy_cold import tidy_a_little
from duebridge_connectors.spark.rows.arrow import epoch_ms
from duebridge_connectors.spark.rows.schema import COLD
from duebridge_connectors.spark.source.option_names import spark_options
from duebridge_connectors.spark.source.planning import plan_read
from duebridge_connectors.spark.source.slices import StoreSlice
from duebridge_connectors.spark.source.store_reader import StoreReader


class DemoteSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a demote. `void`: changed or came due soon meanwhile; the copy does not count.

    `batches` includes those of earlier runs that were killed.
    """

    route: str
    removed: int
    void: int
    batches: int

    def __str__(self) -> str:
        stayed = f", {self.void:,} changed or came due soon, and stayed" if self.void else ""
        return f"route {self.route}: {self.removed:,} envelopes are cold now{stayed}"


def run_demote(spark: SparkSession, *, config: str, route: str) -> DemoteSummary:
    """Move every envelope due beyond the horizon to the cold tier.

    It may be killed at any point: the next run finishes its batches first, and nothing is lost or
    duplicated. Raises `ConfigError`, `StoreError` and `JobFailed`.
    """
    tier = open_tier(config, route)
    finished = finish_batches(spark, tier)
    copied = copy_far_rows(spark, tier, config)
    with _leased(tier) as lease:
        if lease:
            sift_if_worn(spark, tier, lease, coming=copied.rows if copied else 0)
    if copied:
        tier.log.commit(copied, lambda: check_recent(tier.log, copied, tier.now_ms()))
        finished += finish_batches(spark, tier)
    with _leased(tier) as lease:
        if lease:
            tidy_a_little(tier, lease)
    return DemoteSummary(
        route=route,
        removed=sum(commit.removed for commit in finished),
        void=sum(commit.void for commit in finished),
        batches=len(finished),
    )


@contextmanager
def _leased(tier: Tier) -> Iterator[ColdLease | None]:
    """Have the lease of the tier; None while another job has it: the next run does the work."""
    with ExitStack() as held:
        try:
            lease = held.enter_context(tier.leased("demote"))
        except JobFailed:
            lease = None
        yield lease


def copy_far_rows(spark: SparkSession, tier: Tier, config: str) -> Commit | None:
    """Write the envelopes due beyond the horizon, and return the commit; None if there are none."""
    beyond_ms = tier.cold_from_ms()
    with tier.notes() as shards:
        for shard in shards:  # before the first row becomes cold
            shard.note_first(beyond_ms)
    batch = new_batch(tier.now_ms())
    options = {"config": config, "route": tier.route.name, "state": "pending", "content": "packed"}
    given = spark_options({**options, "due_after": beyond_ms, "page": 1000})
    written = copied_slices(spark, StoreReader(*plan_read(given)), ColdBatch(tier.log.root, batch))
    copied = commit_of(tier, written, DEMOTED, batch)
    return copied if copied.rows else None


def copied_slices(spark: SparkSession, reader: StoreReader, batch: ColdBatch) -> DataFrame:
    """Return the files (`WRITTEN`) of a batch that tasks write of what a reader finds.

    To hand the rows to Spark in between takes half of the CPU again.
    """
    slices = reader.partitions()
    numbers = spark.range(0, len(slices), 1, max(1, len(slices)))
    return numbers.mapInArrow(partial(copy_slices, reader, slices, batch), WRITTEN)


def copy_slices(
    reader: StoreReader,
    slices: Sequence[StoreSlice],
    batch: ColdBatch,
    numbers: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Read the slices of these numbers, and write them as `write_files`; raises as the reader."""
    chosen = (slices[row["id"]] for rows in numbers for row in rows.to_pylist())
    pages = (page for each in chosen for page in reader.read(each))
    return write_files(batch, (as_cold(page, batch.name) for page in pages))


def as_cold(packed: pa.RecordBatch, batch: str) -> pa.RecordBatch:
    """Return the readable rows of a page of the store as rows of a batch of the tier."""
    rows = packed.filter(pc.is_valid(packed.column("blob")))
    instants = {
        f"{name}_ms": epoch_ms(rows.column(name))
        for name in ("due_at", "scheduled_at", "expires_at")
    }
    same = {name: rows.column(name) for name in COLD.names if name in rows.schema.names}
    columns = {**same, **instants, "batch": pa.repeat(batch, rows.num_rows)}
    return pa.RecordBatch.from_pydict({name: columns[name] for name in COLD.names})
