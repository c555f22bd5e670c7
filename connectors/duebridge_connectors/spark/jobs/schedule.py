"""The job `schedule`: rows of files or of a table become envelopes of a route.

rows ─┬─ far ─▶ packed, without rows already cold ─▶ batch, verified ─▶ commit
      └─ near or doubtful ─▶ the store
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession

from duebridge.errors import ConfigError
from duebridge_connectors.spark.cold.batches import publish_batch, write_batch
from duebridge_connectors.spark.cold.commit_log import SCHEDULED
from duebridge_connectors.spark.cold.far_rows import FarJob, far_rows, near_rows
from duebridge_connectors.spark.cold.tier import new_batch, open_tier, read_cold
from duebridge_connectors.spark.rows.schema import COLD, is_packed
from duebridge_connectors.spark.source.dataframes import write_envelopes
from duebridge_connectors.spark.source.loader import Summary
from duebridge_connectors.spark.source.options import TABLE, check_format
from duebridge_connectors.spark.source.planning import WriteJob, plan_write
from duebridge_connectors.spark.transforms.cold_copies import batch_rows, exclude
from duebridge_connectors.spark.transforms.envelopes import select_columns

_DEFAULTS: dict[str, dict[str, str]] = {"csv": {"header": "true"}}
_SAME = ["id", "content_hash"]


def run_schedule(
    spark: SparkSession,
    inputs: Sequence[str],
    *,
    form: str = "parquet",
    read_options: Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    where: str | None = None,
    cold: bool = True,
    **write_options: str | int,
) -> Summary:
    """Schedule every row of the inputs; running the same job again changes nothing.

    Rows due beyond the horizon of a route with a cold tier go directly there, unless `cold` is
    false or the rows may replace envelopes. `write_options` are the data source's (`config` and
    `route` at least). Raises `ConfigError`, `StoreUnavailable` and `StoreUnfit` before any row is
    written.
    """
    frame = _read_inputs(spark, inputs, form, read_options or {})
    derived = str(write_options.get("id_columns", "")).split(",")
    keep = tuple(filter(None, map(str.strip, derived)))
    rows = select_columns(frame, columns or {}, where, keep)
    planned = plan_write(write_options, rows.schema)
    may_be_cold = cold and planned.options.on_conflict == "refuse" and not is_packed(rows.columns)
    if planned.route.cold_tier is None or not may_be_cold:
        return write_envelopes(rows, **write_options)
    far = _schedule_far(spark, rows, planned)
    near = write_envelopes(far.near, **write_options)
    duplicate = near.duplicate + far.duplicate
    return msgspec.structs.replace(near, cold=far.cold, duplicate=duplicate)


def _read_inputs(
    spark: SparkSession, inputs: Sequence[str], form: str, options: Mapping[str, str]
) -> DataFrame:
    """Read the inputs with Spark's own readers; a table is given by its name alone."""
    check_format(form)
    if form == TABLE:
        if len(inputs) != 1:
            raise ConfigError(f"expected the name of one table; got {len(inputs)}")
        return spark.read.options(**options).table(inputs[0])
    given = {**_DEFAULTS.get(form, {}), **options}
    return spark.read.options(**given).format(form).load(list(inputs))


class FarSplit(NamedTuple):
    """The counts of the far rows, and the near rows, which are still to be scheduled."""

    near: DataFrame
    cold: int
    duplicate: int


def _schedule_far(spark: SparkSession, rows: DataFrame, planned: WriteJob) -> FarSplit:
    """Write the far rows to the cold tier of their route.

    Repeated rows are duplicates while they are cold; once they have returned, the store knows
    them.
    """
    tier = open_tier(str(planned.options.config), planned.route.name)
    now_ms = tier.now_ms()
    job = FarJob(tier, planned, now_ms, tier.boundary_ms(), new_batch(now_ms))
    far = batch_rows(rows.mapInArrow(partial(far_rows, job), COLD), job.batch)
    state = tier.log.state()
    duplicate = 0
    if state.known:
        there = read_cold(spark, tier, state.known, _SAME)
        duplicate = far.join(there, _SAME, "left_semi").count()
        far = exclude(far, there, _SAME)
    with tier.notes() as shards:
        for shard in shards:
            shard.note_first(job.boundary_ms)
    written = write_batch(tier, far, SCHEDULED, job.batch)
    if written.rows:
        publish_batch(spark, tier, written)
    return FarSplit(rows.mapInArrow(partial(near_rows, job), rows.schema), written.rows, duplicate)
