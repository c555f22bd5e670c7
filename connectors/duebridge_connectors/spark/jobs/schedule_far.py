"""The far half of the job `schedule`: what is due beyond the horizon goes straight to files.

rows ─┬─ far ─▶ packed, without those that are cold already ─▶ batch, verified ─▶ commit
      └─ near, doubtful ─▶ the store, as ever
"""

from functools import partial
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from duebridge.config.load import load_config
from duebridge_connectors.spark.cold_log import SCHEDULED
from duebridge_connectors.spark.cold_tier import Tier, new_batch, open_tier, read_cold, write_batch
from duebridge_connectors.spark.far import FarJob, far_rows, near_rows
from duebridge_connectors.spark.options import WriteOptions
from duebridge_connectors.spark.schema import COLD
from duebridge_connectors.spark.transforms.cold import cold_rows, without

_SAME = ["id", "content_hash"]


class Far(NamedTuple):
    """What became of the far rows, and the rows that are still to be scheduled."""

    near: DataFrame
    cold: int
    duplicate: int


def schedule_far(spark: SparkSession, rows: DataFrame, options: WriteOptions) -> Far:
    """Write the far rows to the cold tier of their route.

    The same rows again are duplicates while they are cold; once they are back, the store knows
    them. Raises `ConfigError`, `StoreError` and `JobFailed`.
    """
    tier = open_tier(str(options.config), options.route)
    job = _job(tier, options)
    far = cold_rows(rows.mapInArrow(partial(far_rows, job), COLD), job.batch)
    state = tier.log.state()
    duplicate = 0
    if state.known:
        there = read_cold(spark, tier, state.known, _SAME)
        duplicate = far.join(there, _SAME, "left_semi").count()
        far = without(far, there, _SAME)
    with tier.opened() as shards:
        for shard in shards:
            shard.note_first(job.boundary_ms)
    written = write_batch(tier, far, SCHEDULED, job.batch)
    if written.rows:
        tier.log.commit(written)
    return Far(rows.mapInArrow(partial(near_rows, job), rows.schema), written.rows, duplicate)


def _job(tier: Tier, options: WriteOptions) -> FarJob:
    now_ms = tier.now_ms()
    brokers = load_config(str(options.config)).brokers
    return FarJob(
        tier,
        brokers[tier.route.target.broker].type,
        options.remember,
        options.id_columns,
        now_ms,
        tier.boundary_ms(),
        new_batch(now_ms),
    )
