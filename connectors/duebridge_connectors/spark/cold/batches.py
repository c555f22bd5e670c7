"""Batches of cold rows: written and verified, then published.

rows ─▶ Parquet of a batch, read back by each task ─▶ commit           write_batch, commit_of
rows never stored ─▶ their ids marked ─▶ living, repeated, later… ones to the store  publish_batch
                                      └▶ earlier rows of the others end ─▶ commit
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.errors import JobFailed
from duebridge.store.cold.lease import ColdLease
from duebridge_connectors.spark.cold.commit_log import Commit
from duebridge_connectors.spark.cold.filter_rebuild import mark_batch
from duebridge_connectors.spark.cold.parquet.files import (
    WRITTEN,
    ColdBatch,
    write_files,
    write_table,
)
from duebridge_connectors.spark.cold.parquet.slices import range_of
from duebridge_connectors.spark.cold.sweep import check_recent
from duebridge_connectors.spark.cold.tier import (
    ColdMarks,
    Tier,
    read_cold,
    read_marks,
    read_still_cold,
)
from duebridge_connectors.spark.cold.tier_state import VOID_LIST, TierState
from duebridge_connectors.spark.transforms.cold_copies import (
    COPY,
    PULLED,
    cancelled_rows,
    exclude,
    without_ended,
)


def write_batch(tier: Tier, rows: DataFrame, kind: str, batch: str) -> Commit:
    """Write rows (see `batch_rows`) as a batch; returns and raises as `commit_of`."""
    write = partial(write_files, ColdBatch(tier.log.root, batch))
    return commit_of(tier, rows.mapInArrow(write, WRITTEN), kind, batch)


def commit_of(tier: Tier, written: DataFrame, kind: str, batch: str) -> Commit:
    """Let tasks write the files of a batch (`WRITTEN`), and return the commit to publish them.

    Each task reads its file back. Raises `JobFailed` if the content differs, or if the driver does
    not see a file that a task has written.
    """
    found = {row.file: row.rows for row in written.collect()}
    unseen = len({*found} - {*tier.log.written(f"batch={batch}")}) if found else 0
    if unseen:
        raise JobFailed(
            f"{tier.log.root}: expected a place that the driver and all executors share;"
            f" the driver does not see {unseen} files: nothing is moved"
        )
    total = sum(found.values())
    return Commit(
        kind=kind,
        batch=batch,
        at_ms=tier.now_ms(),
        rows=total,
        files=tuple(sorted(found)),
        keeps_progress=True,
    )


ENDED_LIST = "ended.parquet"  # rows of earlier batches that later ones of their ids end
OWN = "own_generation"  # of the row of the batch, beside a cold row of its id
PATIENCE_MS = 600_000  # of what has written files already


def publish_batch(
    spark: SparkSession, tier: Tier, batch: Commit, schedule: Callable[[list[str]], None]
) -> Commit:
    """Commit a batch whose rows never were in the store, once that knows their ids; return it.

    Rows whose ids live there or are remembered, that share their id, whose ids went cold after the
    rows had their generations, or that are due before a hydrate's end, are void; `schedule` asks
    the store about them, before the commit: a run that is killed in between asks again. All others
    take the place of what was cold under their ids before, by the same commit: the latest content
    wins, and there are never both. Under the lease of the tier: a rebuild between mark and commit
    would miss the rows, a hydrate would bring back what ends. Raises `JobFailed`, and what
    `schedule` raises.
    """
    with tier.leased("schedule", PATIENCE_MS) as lease:
        living = mark_batch(spark, tier, batch, lease)
        copies = _copies(spark, tier, batch)
        later = copies.filter(pc.field("generation") > pc.field(OWN)).column("id").to_pylist()
        others = _repeated(spark, tier, batch) + _due_soon(spark, tier, batch)
        if void := sorted({*living, *later, *others}):
            schedule(void)
            batch = _without(spark, tier, batch, void)
        batch = _instead(tier, batch, copies, void)
        tier.log.commit(batch, lambda: _check_commit(tier, batch, lease))
        return batch


def _check_commit(tier: Tier, batch: Commit, lease: ColdLease) -> None:
    lease.check()
    check_recent(tier.log, batch, tier.now_ms())


def _repeated(spark: SparkSession, tier: Tier, batch: Commit) -> list[str]:
    """Return the ids of several rows of a batch."""
    rows = read_cold(spark, tier, batch.files, ["id"]).groupBy("id").count()
    return [row.id for row in rows.where("count > 1").collect()]


def _due_soon(spark: SparkSession, tier: Tier, batch: Commit) -> list[str]:
    """Return the ids of rows that a hydrate, which came meanwhile, counts as in the store."""
    until_ms = tier.kept_until()
    files = [file for file in batch.files if range_of(file).from_ms < until_ms]
    rows = read_cold(spark, tier, files, ["id", "due_at_ms"])
    return [row.id for row in rows.where(F.col("due_at_ms") < until_ms).select("id").collect()]


def _without(spark: SparkSession, tier: Tier, batch: Commit, ids: Sequence[str]) -> Commit:
    """Return the commit of a batch whose rows of these ids do not count."""
    rows = read_cold(spark, tier, batch.files, PULLED, ids).toArrow()
    file = f"pulled={batch.batch}/{VOID_LIST}"
    write_table(tier.log.root, file, rows)
    return msgspec.structs.replace(batch, rows=batch.rows - rows.num_rows, pulled=(file,))


def _copies(spark: SparkSession, tier: Tier, batch: Commit) -> pa.Table:
    """Return the cold rows under the ids of a batch, each beside the generation of its own row.

    The ids are marked by now, so these are all that count. A demote that commits later removes only
    what was scheduled after the mark, and that has ended the row of this batch by a tombstone.
    """
    own = read_cold(spark, tier, batch.files, ["id", "generation"])
    cold = read_still_cold(spark, tier, PULLED)
    return cold.join(own.withColumnRenamed("generation", OWN), "id").toArrow()


def _instead(tier: Tier, batch: Commit, copies: pa.Table, void: Sequence[str]) -> Commit:
    """Return the commit of a batch that also ends what was cold under the ids of its rows."""
    counts = ~pc.is_in(pc.field("id"), pa.array(void, pa.string()))
    ended = copies.filter(counts).select(PULLED)
    if not ended.num_rows:
        return batch
    file = f"pulled={batch.batch}/{ENDED_LIST}"
    write_table(tier.log.root, file, ended)
    return msgspec.structs.replace(batch, pulled=(*batch.pulled, file))


class KnownRows(NamedTuple):
    """Rows that files have, and those of them that a cancel binds; None for none of these."""

    rows: DataFrame
    cancelled: DataFrame | None


def read_known(spark: SparkSession, tier: Tier, columns: Sequence[str]) -> KnownRows | None:
    """Return columns of all rows that count, but for void and ended ones; None for no file.

    A row that another row of its id ended is among them. Copies of an unfinished batch are not: the
    store has their envelopes, or knows that they ended.
    """
    marks, state = read_marks(tier), tier.log.state()
    if not state.files:
        return None
    read = partial(_known, spark, tier, state, marks, [*COPY, *columns])
    if not (ids := marks.cancelled_ids):
        return KnownRows(read(), None)
    cancelled = cancelled_rows(read(ids), marks.frame(spark)).localCheckpoint()
    return KnownRows(read(), None if cancelled.isEmpty() else cancelled)


def _known(
    spark: SparkSession,
    tier: Tier,
    state: TierState,
    marks: ColdMarks,
    columns: Sequence[str],
    ids: Sequence[str] | None = None,
) -> DataFrame:
    rows = read_cold(spark, tier, state.files, columns, ids)
    if marks.found:
        rows = without_ended(rows, marks.frame(spark))
    return exclude(rows, read_cold(spark, tier, state.void, COPY), COPY) if state.void else rows
