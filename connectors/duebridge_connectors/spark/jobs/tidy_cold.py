"""The job `tidy-cold`: merges the small files of a cold tier, and deletes what nobody reads.

It needs no Spark session. Demote and hydrate do a small part of it at their end.
"""

import msgspec

from duebridge.store.cold.lease import ColdLease
from duebridge_connectors.spark.cold.compaction import compact
from duebridge_connectors.spark.cold.sweep import sweep
from duebridge_connectors.spark.cold.tier import Tier, open_tier

MERGES, DELETED = 1, 1000  # at the end of another job, at most


class ColdTidySummary(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a run: files and lists merged into fewer, and files deleted.

    `spent` files had returned or were merged, `left` ones were of killed jobs, `entries` of the
    log.
    """

    route: str
    merged: int
    lists: int
    spent: int
    left: int
    entries: int

    def __str__(self) -> str:
        gone = self.spent + self.left + self.entries
        return f"route {self.route}: {self.merged:,} small files merged, {gone:,} files deleted"


def run_tidy_cold(*, config: str, route: str) -> ColdTidySummary:
    """Merge and delete all that can be; killed anywhere, it is run again.

    Nothing that counts is lost, whatever runs meanwhile: a merge of files that changed does not
    count. It has the tier's lease, so that no hydrate commits what a merge has moved. Raises
    `ConfigError`, `StoreError`, `OSError`, and `JobFailed` that names the job that has the tier.
    """
    tier = open_tier(config, route)
    with tier.leased("tidy-cold") as lease:
        now_ms = tier.now_ms()
        merged = compact(tier.log, now_ms, check=lease.check)
        swept = sweep(tier.log, now_ms)
    return ColdTidySummary(
        route=route,
        merged=merged.files,
        lists=merged.lists,
        spent=swept.spent,
        left=swept.left,
        entries=swept.entries,
    )


def tidy_a_little(tier: Tier, lease: ColdLease) -> None:
    """Merge and delete a part, which is small whatever was left."""
    now_ms = tier.now_ms()
    compact(tier.log, now_ms, MERGES, lease.check)
    sweep(tier.log, now_ms, DELETED)
