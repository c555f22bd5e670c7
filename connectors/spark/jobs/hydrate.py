"""The job `hydrate`: cold rows come back into the store before they are due.

files of the hours up to the horizon ─┐
rows of later hours, moved forward ───┤   without void copies, and rows that came before
                                      ▼
schedule.lua, which obeys tombstones ─▶ pending         what is refused stays cold
                                      ▼
commit: taken, pulled, left ─▶ note until when all is in the store ─▶ drop used tombstones
"""

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from connectors.spark.cold_log import HYDRATED, Commit, State
from connectors.spark.cold_tier import (
    Tier,
    finish_batches,
    new_batch,
    open_tier,
    read_cold,
    write_batch,
)
from connectors.spark.loading import write_envelopes
from connectors.spark.marks import Marks, begin, lift, read_marks
from connectors.spark.schema import PULLED
from connectors.spark.summary import Summary
from connectors.spark.transforms.cold import COPY, cold_rows, moved_forward, without, writable


class HydrateSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a hydrate did: all that is due before `until_ms` is in the store, but for `left`.

    `cancelled` rows obeyed a tombstone, `pulled` ones were rescheduled to come sooner. `left` were
    refused, most often since their id lives again with other content; they are tried again.
    """

    route: str
    until_ms: int
    accepted: int = 0
    duplicate: int = 0
    cancelled: int = 0
    pulled: int = 0
    left: int = 0
    first_reason: str = ""

    def __str__(self) -> str:
        """Return one line for people."""
        names = ("accepted", "duplicate", "cancelled", "pulled", "left")
        counts = ", ".join(f"{getattr(self, n):,} {n}" for n in names if getattr(self, n))
        why = f" ({self.first_reason})" if self.left else ""
        return f"route {self.route}: {counts or 'nothing to bring back'}{why}"


class Coming(msgspec.Struct, frozen=True):
    """What is to come back: whole files, and some rows of others."""

    files: list[str]
    due: DataFrame
    early: DataFrame
    has_early: bool

    @property
    def rows(self) -> DataFrame:
        """All of it."""
        return self.due.unionByName(self.early) if self.has_early else self.due


def run_hydrate(
    spark: SparkSession, *, config: str, route: str, **write_options: str | int
) -> HydrateSummary:
    """Bring back what is due within the horizon, or was moved there by a reschedule.

    It may be killed anywhere: what is scheduled already is a duplicate in the next run.
    `write_options` are the data source's `remember` (by default 24h) and `rows_per_second`.
    Raises `ConfigError`, `StoreError` and `JobFailed`.
    """
    tier = open_tier(config, route)
    began = begin(tier)
    finish_batches(spark, tier)
    until_ms, state, marks = tier.boundary_ms(), tier.log.state(), read_marks(tier, began)
    coming = coming_rows(spark, tier, state, marks, until_ms)
    done = HydrateSummary(route=route, until_ms=until_ms)
    if coming.files or coming.has_early:
        done = _bring_back(spark, tier, coming, done, {"config": config, **write_options})
        drop_used(spark, tier, marks, coming)
    with tier.opened() as shards:
        for shard in shards:
            shard.note_hydrated(until_ms)
    return done


def coming_rows(
    spark: SparkSession, tier: Tier, state: State, marks: Marks, until_ms: int
) -> Coming:
    """Return what has to be in the store: due before an instant, or moved there."""
    files = state.due_before(until_ms)
    bound = marks.frame(spark)
    moved = bound.where((F.col("due_at") > 0) & (F.col("due_at") < until_ms))
    later = read_cold(spark, tier, [each for each in state.files if each not in {*files}])
    early = moved_forward(later, moved)
    pulled = read_cold(spark, tier, state.pulled, PULLED)
    due, early = (
        without(without(rows, bound, ["batch", "id"]), pulled, COPY)
        for rows in (read_cold(spark, tier, files), early)
    )
    has_early = any(0 < mark.due_at_ms < until_ms for _, mark in marks.found)
    return Coming(files, due, early, has_early and not early.isEmpty())


def _bring_back(
    spark: SparkSession,
    tier: Tier,
    coming: Coming,
    done: HydrateSummary,
    options: dict[str, str | int],
) -> HydrateSummary:
    """Schedule what comes, and commit that it has come."""
    run = new_batch(tier.now_ms())
    rejects = f"{tier.log.root}/_rejects/{run}"
    given = {"route": done.route, **options, "rejects": rejects}
    summary = write_envelopes(writable(coming.rows), **given)
    left = left_rows(spark, tier, coming, run, rejects) if summary.rejects else ()
    pulled = _write_pulled(tier, coming, run) if coming.has_early else ()
    tier.log.commit(
        Commit(
            kind=HYDRATED,
            batch=run,
            at_ms=tier.now_ms(),
            rows=summary.rows,
            files=left,
            taken=tuple(coming.files),
            pulled=pulled,
        )
    )
    return _counted(done, summary, coming.early.count() if coming.has_early else 0)


def _counted(done: HydrateSummary, summary: Summary, pulled: int) -> HydrateSummary:
    return msgspec.structs.replace(
        done,
        accepted=summary.accepted,
        duplicate=summary.duplicate,
        cancelled=summary.cancelled,
        pulled=pulled,
        left=summary.rejects,
        first_reason=summary.first_reason,
    )


def left_rows(
    spark: SparkSession, tier: Tier, coming: Coming, run: str, rejects: str
) -> tuple[str, ...]:
    """Keep what the store refused as rows of the tier, in files that no commit names yet."""
    refused = spark.read.parquet(rejects).select("id", "generation")
    left = coming.rows.join(refused, ["id", "generation"], "left_semi")
    return write_batch(spark, tier, cold_rows(left, run), HYDRATED, run).files


def _write_pulled(tier: Tier, coming: Coming, run: str) -> tuple[str, ...]:
    coming.early.select(*COPY).write.parquet(f"{tier.log.root}/pulled={run}", mode="overwrite")
    return tuple(tier.log.written(f"pulled={run}"))


def drop_used(spark: SparkSession, tier: Tier, marks: Marks, coming: Coming) -> int:
    """Drop the marks of which no row is left in the tier; returns how many."""
    if not marks.found:
        return 0
    state = tier.log.state()
    files = [*state.files, *(file for batch in state.unfinished for file in batch.files)]
    still = without(
        read_cold(spark, tier, files), read_cold(spark, tier, state.pulled, PULLED), COPY
    )
    gone = read_cold(spark, tier, coming.files)
    ids = gone.select("id").union(coming.early.select("id")) if coming.has_early else gone
    bound = marks.frame(spark)
    void = bound.where("batch != ''").join(gone, ["batch", "id"], "left_semi")
    tombstones = bound.where("batch = ''")
    used = tombstones.join(ids, "id", "left_semi").join(still, "id", "left_anti")
    rows = used.select("shard", "name").union(void.select("shard", "name")).collect()
    return lift(tier, marks, [(row.shard, row.name) for row in rows])
