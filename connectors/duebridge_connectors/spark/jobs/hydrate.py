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
from duebridge_connectors.spark.source.loader import Summary, in_words
from duebridge_connectors.spark.transforms.cold_copies import (
    COPY,
    batch_rows,
    exclude,
    moved_forward,
    writer_rows,
)

_LIFE = ["id", "generation"]


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
        counts = in_words(self, ("accepted", "duplicate", "cancelled", "pulled", "left"))
        why = f" ({self.first_reason})" if self.left else ""
        return f"route {self.route}: {counts or 'nothing to bring back'}{why}"


class ReturningRows(msgspec.Struct, frozen=True):
    """What is to come back: whole files, and some rows of others; `early` are those, if any."""

    files: list[str]
    due: DataFrame
    early: DataFrame | None

    @property
    def rows(self) -> DataFrame:
        """All of it."""
        return self.due if self.early is None else self.due.unionByName(self.early)


def run_hydrate(
    spark: SparkSession, *, config: str, route: str, **write_options: str | int
) -> HydrateSummary:
    """Bring back what is due within the horizon, or was moved there by a reschedule.

    It may be killed anywhere: what is scheduled already is a duplicate in the next run.
    `write_options` are the data source's `remember` (by default 24h) and `rows_per_second`.
    Raises `ConfigError`, `StoreError` and `JobFailed`.
    """
    tier = open_tier(config, route)
    began = new_generations(tier)
    finish_batches(spark, tier)
    until_ms, state, marks = tier.boundary_ms(), tier.log.state(), read_marks(tier, began)
    coming = returning_rows(spark, tier, state, marks, until_ms)
    done = HydrateSummary(route=route, until_ms=until_ms)
    if coming.files or coming.early is not None:
        done = _bring_back(spark, tier, coming, done, {"config": config, **write_options})
        drop_used(spark, tier, marks, coming)
    with tier.opened() as shards:
        for shard in shards:
            shard.note_hydrated(until_ms)
    return done


def returning_rows(
    spark: SparkSession, tier: Tier, state: TierState, marks: Marks, until_ms: int
) -> ReturningRows:
    """Return what has to be in the store: due before an instant, or moved there."""
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
    """Return rows without void copies, and without those that came before their file."""
    if marks.found:
        rows = exclude(rows, marks.frame(spark), ["batch", "id"])
    if state.pulled:
        rows = exclude(rows, read_cold(spark, tier, state.pulled, COPY), COPY)
    return rows


def _bring_back(
    spark: SparkSession,
    tier: Tier,
    coming: ReturningRows,
    done: HydrateSummary,
    options: dict[str, str | int],
) -> HydrateSummary:
    """Schedule what comes, and commit that it has come."""
    run = new_batch(tier.now_ms())
    rejects = f"_rejects/{run}"
    given = {"route": done.route, **options, "rejects": f"{tier.log.root}/{rejects}"}
    summary = write_envelopes(writer_rows(coming.rows), **given)
    left = left_rows(spark, tier, coming, run, rejects) if summary.rejects else ()
    pulled = () if coming.early is None else _write_pulled(tier, coming.early, run)
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
    return _counted(done, summary, 0 if coming.early is None else coming.early.count())


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
    spark: SparkSession, tier: Tier, coming: ReturningRows, run: str, rejects: str
) -> tuple[str, ...]:
    """Keep what the store refused as rows of the tier, in files that no commit names yet."""
    refused = read_cold(spark, tier, tier.log.written(rejects), _LIFE)
    left = coming.rows.join(refused, _LIFE, "left_semi")
    return write_batch(tier, batch_rows(left, run), HYDRATED, run).files


def _write_pulled(tier: Tier, early: DataFrame, run: str) -> tuple[str, ...]:
    """Keep which rows came early: no more than the marks, which are in memory too."""
    file = f"pulled={run}/part-0.parquet"
    write_table(tier.log.root, file, early.select(*COPY).toArrow())
    return (file,)


def drop_used(spark: SparkSession, tier: Tier, marks: Marks, coming: ReturningRows) -> int:
    """Drop the marks of which no row is left in the tier; returns how many."""
    if not marks.found:
        return 0
    came = read_cold(spark, tier, coming.files, COPY, marks.ids)
    void = marks.frame(spark).join(came, ["batch", "id"], "left_semi").collect()
    ids = came if coming.early is None else came.unionByName(coming.early.select(*COPY))
    bound = marks.frame(spark).where("batch = ''").join(ids, "id", "left_semi").collect()
    still = _still_cold(spark, tier, [row.id for row in bound])
    used = [*void, *(row for row in bound if row.id not in still)]
    return drop_marks(tier, marks, [(row.shard, row.name) for row in used])


def _still_cold(spark: SparkSession, tier: Tier, ids: list[str]) -> set[str]:
    """Return those of the ids that have a row in the tier."""
    state = tier.log.state()
    rows = read_cold(spark, tier, state.known, COPY, ids)
    pulled = read_cold(spark, tier, state.pulled, COPY, ids)
    return {row.id for row in exclude(rows, pulled, COPY).select("id").distinct().collect()}
