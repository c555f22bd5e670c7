"""The job `hydrate`: returns cold rows to the store before they are due.

lease of the tier: one hydrate at a time ─▶ from here on nothing due in the horizon goes cold
                                      ▼
files of the hours up to the horizon ─┐
rows of later hours, moved forward ───┤   without void copies and rows already returned
                                      ▼
schedule.lua, which obeys tombstones ─▶ pending         refused rows stay cold
                                      ▼
commit: taken, pulled, left ─▶ drop used tombstones ─▶ rebuild a worn filter
                                      ▼
note how far the store is complete
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from duebridge.store.cold.lease import ColdLease
from duebridge_connectors.spark.cold.batches import write_batch
from duebridge_connectors.spark.cold.commit_log import HYDRATED, Commit
from duebridge_connectors.spark.cold.filter_rebuild import sift_if_worn
from duebridge_connectors.spark.cold.parquet.files import write_table
from duebridge_connectors.spark.cold.removal import finish_batches
from duebridge_connectors.spark.cold.tier import (
    Tier,
    drop_marks,
    new_batch,
    new_generations,
    open_tier,
    read_cold,
    read_marks,
    read_still_cold,
)
from duebridge_connectors.spark.jobs.tidy_cold import tidy_a_little
from duebridge_connectors.spark.source.dataframes import check_write_options, write_envelopes
from duebridge_connectors.spark.source.loader import format_counts
from duebridge_connectors.spark.transforms.cold_copies import (
    COPY,
    PULLED,
    batch_rows,
    exclude,
    moved_forward,
    writer_rows,
)

_LIFE = ["id", "generation"]


class HydrateSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a hydrate: all rows due before `until_ms` are in the store, except `left`.

    `cancelled` rows had a tombstone, or are remembered as cancelled, `dead` ones as dead; `pulled`
    ones were rescheduled to an earlier instant. `left` were refused, mostly because the id exists
    with other content; the next run retries them.
    """

    route: str
    until_ms: int
    accepted: int = 0
    duplicate: int = 0
    cancelled: int = 0
    dead: int = 0
    pulled: int = 0
    left: int = 0
    first_reason: str = ""

    def __str__(self) -> str:
        names = ("accepted", "duplicate", "cancelled", "dead", "pulled", "left")
        counts = format_counts(self, names)
        why = f" ({self.first_reason})" if self.left else ""
        return f"route {self.route}: {counts or 'nothing to bring back'}{why}"


def run_hydrate(
    spark: SparkSession, *, config: str, route: str, **write_options: str | int
) -> HydrateSummary:
    """Return the rows that are due within the horizon, or were rescheduled into it.

    It may be killed at any point: rows already scheduled are duplicates in the next run.
    `write_options` are the data source's `remember` (by default 24h) and `rows_per_second`.
    Raises `ConfigError`, `StoreError` and `JobFailed`, which names the job that is at it already.
    """
    check_write_options(config=config, route=route, **write_options)  # now, not once rows are due
    tier = open_tier(config, route)
    with tier.leased("hydrate") as lease:
        until_ms = tier.boundary_ms()
        with tier.notes() as shards:
            for shard in shards:  # before the log is read: a batch that comes later has no such row
                shard.note_hydrating(until_ms, lease.token)
        began = new_generations(tier)
        finish_batches(spark, tier)
        returning = _HydrateRows(spark, tier, until_ms, began, lease)
        done = HydrateSummary(route=route, until_ms=until_ms)
        if returning.files or returning.early is not None:
            done = returning.bring_back(done, {"config": config, **write_options})
            returning.drop_used_marks()
        sift_if_worn(spark, tier, lease, marks=returning.marks_left)
        lease.check()
        with tier.notes() as shards:
            for shard in shards:
                shard.note_hydrated(until_ms, lease.token)
        tidy_a_little(tier, lease)
    return done


class _HydrateRows:
    """Rows that belong in the store: those due of whole files, and single rows of later files."""

    def __init__(
        self,
        spark: SparkSession,
        tier: Tier,
        until_ms: int,
        began: Sequence[int],
        lease: ColdLease,
    ) -> None:
        """Select the rows due before an instant, or rescheduled to it."""
        self._spark, self._tier, self._lease = spark, tier, lease
        self._state, self._marks = tier.log.state(), read_marks(tier, began)
        self.marks_left = len(self._marks.found)
        self.files = self._state.due_before(until_ms)
        self.due = self._counting(read_cold(spark, tier, self.files))
        self.early = self._moved_before(until_ms)

    @property
    def rows(self) -> DataFrame:
        return self.due if self.early is None else self.due.unionByName(self.early)

    def _moved_before(self, until_ms: int) -> DataFrame | None:
        forward = self._marks.due_before(until_ms)
        if not forward.found:
            return None
        others = self._state.due_from(until_ms)
        rows = read_cold(self._spark, self._tier, others, ids=forward.ids)
        moved = moved_forward(rows, forward.frame(self._spark))
        early = self._counting(moved).localCheckpoint()
        return None if early.isEmpty() else early

    def _counting(self, rows: DataFrame) -> DataFrame:
        """Drop void copies, and rows that returned before the rest of their file."""
        if self._marks.found:
            rows = exclude(rows, self._marks.frame(self._spark), ["batch", "id"])
        if self._state.pulled:
            pulled = read_cold(self._spark, self._tier, self._state.pulled, COPY)
            rows = exclude(rows, pulled, COPY)
        return rows

    def bring_back(self, done: HydrateSummary, options: dict[str, str | int]) -> HydrateSummary:
        """Schedule the rows, and commit that they have returned."""
        tier, run = self._tier, new_batch(self._tier.now_ms())
        rejects = f"_rejects/{run}"
        given = {"route": done.route, **options, "rejects": f"{tier.log.root}/{rejects}"}
        lease = {"cold_lease": self._lease.token}
        summary = write_envelopes(writer_rows(self.rows), **given, **lease)
        self._lease.turn()  # no task that still runs may bring back what loses its marks
        left = self._left(run, rejects) if summary.rejects else ()
        pulled = self._write_pulled(run)
        at_ms, taken = tier.now_ms(), tuple(self.files)
        change: dict[str, Any] = {
            "rows": summary.rows,
            "files": left,
            "taken": taken,
            "pulled": pulled,
        }
        tier.log.commit(Commit(kind=HYDRATED, batch=run, at_ms=at_ms, **change), self._lease.check)
        return msgspec.structs.replace(
            done,
            accepted=summary.accepted,
            duplicate=summary.duplicate,
            cancelled=summary.cancelled,
            dead=summary.dead,
            pulled=0 if self.early is None else self.early.count(),
            left=summary.rejects,
            first_reason=summary.first_reason,
        )

    def _left(self, run: str, rejects: str) -> tuple[str, ...]:
        """Write the refused rows as files of the tier, which no commit names yet."""
        tier = self._tier
        refused = read_cold(self._spark, tier, tier.log.written(rejects), _LIFE)
        left = self.rows.join(refused, _LIFE, "left_semi")
        return write_batch(tier, batch_rows(left, run), HYDRATED, run).files

    def _write_pulled(self, run: str) -> tuple[str, ...]:
        """Write the keys of the early rows: at most as many as the marks, which fit in memory."""
        if self.early is None:
            return ()
        file = f"pulled={run}/part-0.parquet"
        write_table(self._tier.log.root, file, self.early.select(*PULLED).toArrow())
        return (file,)

    def drop_used_marks(self) -> None:
        """Drop the marks that no row of the tier needs any more."""
        spark, tier, marks = self._spark, self._tier, self._marks
        if not marks.found:
            return
        came = read_cold(spark, tier, self.files, COPY, marks.ids)
        void = marks.frame(spark).join(came, ["batch", "id"], "left_semi").collect()
        ids = came if self.early is None else came.unionByName(self.early.select(*COPY))
        bound = marks.frame(spark).where("batch = ''").join(ids, "id", "left_semi").collect()
        # Also rows that came: a merge that was first has them in a file that still counts.
        rows = read_still_cold(spark, tier, COPY, [row.id for row in (*void, *bound)]).collect()
        copies, still = {(row.batch, row.id) for row in rows}, {row.id for row in rows}
        used = [row for row in void if (row.batch, row.id) not in copies]
        used += [row for row in bound if row.id not in still]
        drop_marks(tier, marks, [(row.shard, row.name) for row in used], self._lease.token)
        self.marks_left -= len(used)
