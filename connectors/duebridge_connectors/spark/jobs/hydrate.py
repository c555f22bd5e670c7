"""The job `hydrate`: returns cold rows to the store before they are due.

files of the hours up to the horizon ─┐
rows of later hours, moved forward ───┤   without void copies and rows already returned
                                      ▼
schedule.lua, which obeys tombstones ─▶ pending         refused rows stay cold
                                      ▼
commit: taken, pulled, left ─▶ note how far the store is complete ─▶ drop used tombstones
"""

import msgspec
from pyspark.sql import DataFrame, SparkSession

from duebridge_connectors.spark.cold.batches import finish_batches, write_batch
from duebridge_connectors.spark.cold.commit_log import HYDRATED, Commit, TierState
from duebridge_connectors.spark.cold.parquet_files import write_table
from duebridge_connectors.spark.cold.tier import (
    Marks,
    Tier,
    drop_marks,
    new_batch,
    new_generations,
    open_tier,
    read_cold,
    read_marks,
)
from duebridge_connectors.spark.source.dataframes import write_envelopes
from duebridge_connectors.spark.source.loader import format_counts
from duebridge_connectors.spark.transforms.cold_copies import (
    COPY,
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
        """Return one line for people."""
        names = ("accepted", "duplicate", "cancelled", "dead", "pulled", "left")
        counts = format_counts(self, names)
        why = f" ({self.first_reason})" if self.left else ""
        return f"route {self.route}: {counts or 'nothing to bring back'}{why}"


class ReturningRows(msgspec.Struct, frozen=True):
    """Rows to return: those due of whole files, and single rows of later files in `early`."""

    files: list[str]
    due: DataFrame
    early: DataFrame | None

    @property
    def rows(self) -> DataFrame:
        """All rows to return."""
        return self.due if self.early is None else self.due.unionByName(self.early)


def run_hydrate(
    spark: SparkSession, *, config: str, route: str, **write_options: str | int
) -> HydrateSummary:
    """Return the rows that are due within the horizon, or were rescheduled into it.

    It may be killed at any point: rows already scheduled are duplicates in the next run.
    `write_options` are the data source's `remember` (by default 24h) and `rows_per_second`.
    Raises `ConfigError`, `StoreError` and `JobFailed`.
    """
    tier = open_tier(config, route)
    began = new_generations(tier)
    finish_batches(spark, tier)
    until_ms, state, marks = tier.boundary_ms(), tier.log.state(), read_marks(tier, began)
    returning = returning_rows(spark, tier, state, marks, until_ms)
    done = HydrateSummary(route=route, until_ms=until_ms)
    if returning.files or returning.early is not None:
        done = _bring_back(spark, tier, returning, done, {"config": config, **write_options})
        drop_used(spark, tier, marks, returning)
    with tier.notes() as shards:
        for shard in shards:
            shard.note_hydrated(until_ms)
    return done


def returning_rows(
    spark: SparkSession, tier: Tier, state: TierState, marks: Marks, until_ms: int
) -> ReturningRows:
    """Select the rows that belong in the store: due before an instant, or rescheduled to it."""
    files = state.due_before(until_ms)
    due = _counting(spark, tier, state, marks, read_cold(spark, tier, files))
    forward = marks.due_before(until_ms)
    if not forward.found:
        return ReturningRows(files, due, None)
    others = [file for file in state.files if file not in {*files}]
    moved = moved_forward(read_cold(spark, tier, others, ids=forward.ids), forward.frame(spark))
    early = _counting(spark, tier, state, marks, moved).localCheckpoint()
    return ReturningRows(files, due, None if early.isEmpty() else early)


def _counting(
    spark: SparkSession, tier: Tier, state: TierState, marks: Marks, rows: DataFrame
) -> DataFrame:
    """Drop void copies, and rows that returned before the rest of their file."""
    if marks.found:
        rows = exclude(rows, marks.frame(spark), ["batch", "id"])
    if state.pulled:
        rows = exclude(rows, read_cold(spark, tier, state.pulled, COPY), COPY)
    return rows


def _bring_back(
    spark: SparkSession,
    tier: Tier,
    returning: ReturningRows,
    done: HydrateSummary,
    options: dict[str, str | int],
) -> HydrateSummary:
    """Schedule the rows, and commit that they have returned."""
    run = new_batch(tier.now_ms())
    rejects = f"_rejects/{run}"
    given = {"route": done.route, **options, "rejects": f"{tier.log.root}/{rejects}"}
    summary = write_envelopes(writer_rows(returning.rows), **given)
    left = left_rows(spark, tier, returning, run, rejects) if summary.rejects else ()
    pulled = () if returning.early is None else _write_pulled(tier, returning.early, run)
    tier.log.commit(
        Commit(
            kind=HYDRATED,
            batch=run,
            at_ms=tier.now_ms(),
            rows=summary.rows,
            files=left,
            taken=tuple(returning.files),
            pulled=pulled,
        )
    )
    return msgspec.structs.replace(
        done,
        accepted=summary.accepted,
        duplicate=summary.duplicate,
        cancelled=summary.cancelled,
        dead=summary.dead,
        pulled=0 if returning.early is None else returning.early.count(),
        left=summary.rejects,
        first_reason=summary.first_reason,
    )


def left_rows(
    spark: SparkSession, tier: Tier, returning: ReturningRows, run: str, rejects: str
) -> tuple[str, ...]:
    """Write the refused rows as files of the tier, which no commit names yet."""
    refused = read_cold(spark, tier, tier.log.written(rejects), _LIFE)
    left = returning.rows.join(refused, _LIFE, "left_semi")
    return write_batch(tier, batch_rows(left, run), HYDRATED, run).files


def _write_pulled(tier: Tier, early: DataFrame, run: str) -> tuple[str, ...]:
    """Write the keys of the early rows: at most as many as the marks, which fit in memory."""
    file = f"pulled={run}/part-0.parquet"
    write_table(tier.log.root, file, early.select(*COPY).toArrow())
    return (file,)


def drop_used(spark: SparkSession, tier: Tier, marks: Marks, returning: ReturningRows) -> int:
    """Drop the marks that no row of the tier needs any more; return how many."""
    if not marks.found:
        return 0
    came = read_cold(spark, tier, returning.files, COPY, marks.ids)
    void = marks.frame(spark).join(came, ["batch", "id"], "left_semi").collect()
    ids = came if returning.early is None else came.unionByName(returning.early.select(*COPY))
    bound = marks.frame(spark).where("batch = ''").join(ids, "id", "left_semi").collect()
    still = _still_cold(spark, tier, [row.id for row in bound])
    used = [*void, *(row for row in bound if row.id not in still)]
    return drop_marks(tier, marks, [(row.shard, row.name) for row in used])


def _still_cold(spark: SparkSession, tier: Tier, ids: list[str]) -> set[str]:
    """Return the ids that still have a row in the tier."""
    state = tier.log.state()
    rows = read_cold(spark, tier, state.known, COPY, ids)
    pulled = read_cold(spark, tier, state.pulled, COPY, ids)
    return {row.id for row in exclude(rows, pulled, COPY).select("id").distinct().collect()}
