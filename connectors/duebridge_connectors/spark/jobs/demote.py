"""The job `demote`: moves envelopes due beyond the horizon from the store to Parquet files.

store: pending, due beyond the horizon
  │  written, read back, counted, compared
  ▼
Parquet of a new batch ─▶ rebuild the filter of the cold ids if it has no room for them
  │
  ▼
commit: the copies are complete
  │  demote.lua: unchanged envelopes leave; the copy of one that changed, or is due soon, is void
  ▼
commit: the copies count ─▶ merge and delete a few files
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec
from pyspark.sql import SparkSession

from duebridge.errors import JobFailed
from duebridge.store.cold.lease import ColdLease
from duebridge_connectors.spark.cold.batches import finish_batches, write_batch
from duebridge_connectors.spark.cold.commit_log import DEMOTED, Commit
from duebridge_connectors.spark.cold.filter_rebuild import sift_if_worn
from duebridge_connectors.spark.cold.sweep import check_recent
from duebridge_connectors.spark.cold.tier import Tier, new_batch, open_tier
from duebridge_connectors.spark.jobs.tidy_cold import tidy_a_little
from duebridge_connectors.spark.source.dataframes import read_source
from duebridge_connectors.spark.transforms.cold_copies import as_cold


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
    rows = read_source(spark, **options, due_after=beyond_ms, page=1000)
    copied = write_batch(tier, as_cold(rows, batch), DEMOTED, batch)
    return copied if copied.rows else None
