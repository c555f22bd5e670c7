"""The job `schedule`: rows of files or of a table become envelopes of a route.

what a killed demote left is finished
rows, evaluated once ─┬─ far ─▶ packed, without rows already cold ─▶ batch, verified ─▶ commit
                      ├─ far, of an id that lives in the store ─▶ the store, which judges it
                      └─ near or doubtful ─▶ the store
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.errors import ConfigError
from duebridge_connectors.spark.cold.batches import publish_batch, read_known, write_batch
from duebridge_connectors.spark.cold.commit_log import SCHEDULED
from duebridge_connectors.spark.cold.removal import finish_batches
from duebridge_connectors.spark.cold.rows_beyond_horizon import (
    Content,
    DirectDemote,
    cancelled_rows,
    far_rows,
    known_rows,
    near_rows,
    other_rows,
)
from duebridge_connectors.spark.cold.tier import new_batch, open_tier
from duebridge_connectors.spark.filesystem import write_file
from duebridge_connectors.spark.rows.schema import COLD, is_packed
from duebridge_connectors.spark.source.dataframes import write_envelopes
from duebridge_connectors.spark.source.loader import Summary
from duebridge_connectors.spark.source.option_names import spark_name
from duebridge_connectors.spark.source.options import LIVING, TABLE, check_format
from duebridge_connectors.spark.source.planning import WriteJob, plan_write
from duebridge_connectors.spark.source.writer import rejects_directory
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
    far = _schedule_far(spark, rows, planned, write_options)
    near = write_envelopes(far.near, **_for_the_rest(planned, far.counts, write_options))
    done = Summary.of(near.route, [far.counts, near])
    if (place := planned.options.summary) is not None:  # that of the near rows alone, by now
        write_file(planned.stores.place(place), msgspec.json.encode(done))
    return done


def _for_the_rest(
    planned: WriteJob, done: Summary, options: Mapping[str, str | int]
) -> dict[str, str | int]:
    """Return the options of a later write, which may refuse what is left of `max_rejects`."""
    if (most := planned.options.max_rejects) is None:
        return {**options}
    others = {name: of for name, of in options.items() if spark_name(name) != "maxRejects"}
    return {**others, "max_rejects": max(0, most - done.rejects)}


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
    counts: Summary


def _schedule_far(
    spark: SparkSession, rows: DataFrame, planned: WriteJob, options: Mapping[str, str | int]
) -> FarSplit:
    """Write the far rows to the cold tier of their route.

    Repeated rows, of this job or an earlier one, are duplicates while they are cold; once they have
    returned, the store knows them. It also judges those whose ids live there, with all their rows:
    else both would be delivered. So each far row that was neither written nor judged is one, or
    cancelled. Of a row that a demote had merely copied the store may know neither: such are cold,
    or void, before the others are compared with them.
    """
    tier = open_tier(str(planned.options.config), planned.route.name)
    finish_batches(spark, tier)
    rows = _settled(rows)
    now_ms = tier.now_ms()
    job = DirectDemote(tier, planned, now_ms, tier.cold_from_ms(), new_batch(now_ms))
    there = read_known(spark, tier, ["content_hash"])
    far, seen = rows.mapInArrow(partial(far_rows, job), COLD), Observation()
    new = far.observe(seen, F.count("*").alias("rows"))
    new = new if there is None else exclude(new, there.rows, _SAME)
    with tier.notes() as shards:
        for shard in shards:
            shard.note_first(job.boundary_ms)
    written = write_batch(tier, batch_rows(new, job.batch, _SAME), SCHEDULED, job.batch)
    asked = msgspec.structs.replace(planned, run=f"{LIVING}{planned.run}")
    if (earlier := rejects_directory(asked)) is not None:
        earlier.finish([])
    done: list[Summary] = []
    if written.rows:
        ask = partial(_ask, rows, job, {**options, "run": asked.run} if earlier else options)
        written = publish_batch(spark, tier, written, lambda ids: done.append(ask(ids)))
    near, ended, ended_near = rows.mapInArrow(partial(near_rows, job), rows.schema), 0, 0
    if there is not None and there.cancelled is not None:
        ended = far.join(there.cancelled, _SAME, "left_semi").count()
        pairs = there.cancelled.select(*_SAME).collect()
        cancelled = frozenset(Content(name, bytes(content)) for name, content in pairs)
        ended_near = near.mapInArrow(partial(cancelled_rows, job, cancelled), rows.schema).count()
        near = near.mapInArrow(partial(other_rows, job, cancelled), rows.schema)
    # Where nothing is new, adaptive execution drops the observation with the branch it finds empty.
    found = seen.get["rows"] if written.rows else far.count()
    counts = Summary(
        route=planned.route.name,
        cold=written.rows,
        cancelled=ended + ended_near,
        duplicate=found - written.rows - ended - sum(each.rows for each in done),
    )
    return FarSplit(near, Summary.of(planned.route.name, [*done, counts]))


def _settled(rows: DataFrame) -> DataFrame:
    """Evaluate the rows once: the far and the near half are read one after the other.

    Another `now()`, or a table that changed, would put a row into neither half, or into both. The
    executors' disks keep the rows, until Spark finds that nobody uses the frame any more. Rows that
    are lost with an executor fail the job; those of `persist` would be evaluated anew.
    """
    return rows.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)


def _ask(
    rows: DataFrame, job: DirectDemote, options: Mapping[str, str | int], ids: Sequence[str]
) -> Summary:
    """Schedule the far rows of these ids in the store."""
    known = rows.mapInArrow(partial(known_rows, job, frozenset(ids)), rows.schema)
    return write_envelopes(known, **options)
