"""The evidence of `reconcile`: the store, the cold tiers, the brokers and the journal as rows.

The store and its journal change while they are read, so each is copied once to Parquet below
`home`, a directory that the driver and all executors share.
"""

from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from duebridge.config.models import Config, Route
from duebridge.errors import ConfigError
from duebridge.store.routes import Registry
from duebridge_connectors.spark.cold.tier import open_tier, read_still_cold
from duebridge_connectors.spark.kafka_source import kafka_options, read_records
from duebridge_connectors.spark.source.dataframes import read_source
from duebridge_connectors.spark.source.planning import StoreAddress
from duebridge_connectors.spark.source.schema import DECODED, JOURNAL
from duebridge_connectors.spark.transforms.cold_copies import COPY, as_held
from duebridge_connectors.spark.transforms.facts import arrived_in_export, arrived_in_kafka

_HELD = ("route", "id", "state", "waits_for", "scheduled_at")


def routes_in_store(address: StoreAddress, routes: Sequence[Route]) -> list[Route]:
    """Return the routes that the store knows; the others have nothing to read."""
    with address.connect() as connection:
        known = Registry(connection, address.namespace).routes()
    return [route for route in routes if route.name in known]


def check_readable(config: Config, routes: Sequence[Route], exports: Sequence[str]) -> None:
    """Raise `ConfigError` for a route whose broker Spark cannot read, unless there are exports."""
    unread = [route.name for route in routes if config.brokers[route.target.broker].type != "kafka"]
    if unread and not exports:
        raise ConfigError(
            f"expected an export of a consumer for {', '.join(unread)}, whose broker Spark cannot"
            " read; got none: say --export, or --route for others"
        )


def snapshot_held(
    spark: SparkSession, config: str, routes: Sequence[Route], home: str
) -> DataFrame:
    """Copy the envelopes that the store and the cold tiers hold of these routes, without bodies.

    The store is read before the files: an envelope moved meanwhile is in one of them, or in both.
    """
    if not routes:
        return spark.createDataFrame([], StructType([DECODED[name] for name in _HELD]))
    options = {"config": config, "route": _names(routes)}
    return reduce(
        DataFrame.unionByName,
        [
            _snapshot(spark, f"{home}/held", _HELD, **options),
            *read_cold_tiers(spark, config, routes),
        ],
    )


def read_cold_tiers(spark: SparkSession, config: str, routes: Sequence[Route]) -> list[DataFrame]:
    """Return the rows in the cold tiers of these routes, in the state `cold`.

    They include void and cancelled rows, which only hydrate can tell.
    """
    found = []
    for route in routes:
        if route.cold_tier is None:
            continue
        tier = open_tier(config, route.name)
        rows = read_still_cold(spark, tier, [*COPY, "due_at_ms", "scheduled_at_ms"])
        found.append(as_held(rows, route.name))
    return found


def snapshot_journal(
    spark: SparkSession, config: str, routes: Sequence[Route], home: str
) -> DataFrame:
    """Copy the journal of these routes; entries cut by the cap are a gap."""
    if not routes:
        return spark.createDataFrame([], JOURNAL)
    options = {"config": config, "route": _names(routes), "stream": "journal", "on_trim": "gap"}
    return _snapshot(spark, f"{home}/journal", ("*",), **options)


def read_arrived(
    spark: SparkSession,
    config: Config,
    routes: Sequence[Route],
    exports: Sequence[str],
    *,
    with_fingerprint: bool,
) -> DataFrame:
    """Return the messages that the brokers of these routes have.

    Kafka topics are read whole, up to their ends when the query starts.
    """
    found = [read_export(spark, path) for path in exports]
    for broker in sorted({route.target.broker for route in routes}):
        mine = [route for route in routes if route.target.broker == broker]
        if config.brokers[broker].type == "kafka":
            options = {**kafka_options(config, broker), "subscribePattern": topics_pattern(mine)}
            records = read_records(spark, spark.read, options)
            found.append(arrived_in_kafka(records, with_fingerprint=with_fingerprint))
    return reduce(DataFrame.unionByName, found)


def read_export(spark: SparkSession, path: str) -> DataFrame:
    """Read the export of a consumer: JSON lines, or Parquet if the name says so."""
    is_parquet = path.rstrip("/").endswith(".parquet")
    rows = spark.read.parquet(path) if is_parquet else spark.read.json(path)
    for name in ("route", "id", "at"):
        if name not in rows.columns:
            raise ConfigError(f"{path}: expected columns route, id and at; got {rows.columns}")
    return arrived_in_export(rows)


def topics_pattern(routes: Iterable[Route]) -> str:
    """Return a Java regular expression for every topic that these routes may publish to.

    An envelope may choose any target that `allow_targets` permits; those names may be globs.
    """
    topics = {of.topic for route in routes for of in route.targets().values() if of.topic}
    wild = {"*": ".*", "?": "."}
    return "|".join(
        "".join(wild.get(each, each if each.isalnum() else f"\\{each}") for each in topic)
        for topic in sorted(topics)
    )


def _snapshot(spark: SparkSession, path: str, columns: Sequence[str], **options: str) -> DataFrame:
    rows = read_source(spark, **options).select(*columns)
    rows.write.mode("overwrite").parquet(path)
    return spark.read.parquet(path)


def _names(routes: Sequence[Route]) -> str:
    return ",".join(route.name for route in routes)
