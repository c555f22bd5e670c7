"""The job `schedule`: rows of a file, a directory or a table become envelopes of a route."""

from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import DataFrame, SparkSession

from duebridge.errors import ConfigError
from duebridge_connectors.spark.formats import TABLE, check_format
from duebridge_connectors.spark.jobs.schedule_far import schedule_far
from duebridge_connectors.spark.loading import write_envelopes
from duebridge_connectors.spark.planning import plan_write
from duebridge_connectors.spark.schema import is_packed
from duebridge_connectors.spark.summary import Summary
from duebridge_connectors.spark.transforms.chosen import chosen_columns

_DEFAULTS: dict[str, dict[str, str]] = {"csv": {"header": "true"}}


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
    """Schedule every row of the inputs; the same job again changes nothing, and says so.

    What is due beyond the horizon of a route with a cold tier goes straight there, unless `cold` is
    false or it may replace what the store has. `write_options` are the data source's (`config` and
    `route` at least). Raises `ConfigError`, `StoreUnavailable` and `StoreUnfit` before any row is
    written.
    """
    frame = read_inputs(spark, inputs, form, read_options or {})
    derived = str(write_options.get("id_columns", "")).split(",")
    keep = tuple(filter(None, map(str.strip, derived)))
    rows = chosen_columns(frame, columns or {}, where, keep)
    planned = plan_write({name: str(each) for name, each in write_options.items()}, rows.schema)
    may_be_cold = cold and planned.options.on_conflict == "refuse" and not is_packed(rows.columns)
    if planned.route.cold_tier is None or not may_be_cold:
        return write_envelopes(rows, **write_options)
    far = schedule_far(spark, rows, planned.options)
    near = write_envelopes(far.near, **write_options)
    duplicate = near.duplicate + far.duplicate
    return msgspec.structs.replace(near, cold=far.cold, duplicate=duplicate)


def read_inputs(
    spark: SparkSession, inputs: Sequence[str], form: str, options: Mapping[str, str]
) -> DataFrame:
    """Return what the inputs hold, by Spark's own readers; of a table, its one name."""
    check_format(form)
    if form == TABLE:
        if len(inputs) != 1:
            raise ConfigError(f"expected the name of one table; got {len(inputs)}")
        return spark.read.options(**options).table(inputs[0])
    given = {**_DEFAULTS.get(form, {}), **options}
    return spark.read.options(**given).format(form).load(list(inputs))
