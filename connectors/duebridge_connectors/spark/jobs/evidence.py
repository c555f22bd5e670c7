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
from duebridge_connectors.spark.cold.tier import open_tier, read_cold
from duebridge_connectors.spark.kafka_source import kafka_options
from duebridge_connectors.spark.source.dataframes import read_source
from duebridge_connectors.spark.source.planning import StoreAddress
from duebridge_connectors.spark.source.schema import DECODED, JOURNAL
from duebridge_connectors.spark.transforms.cold_copies import COPY, as_held, exclude
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
        state = tier.log.state()
        rows = read_cold(spark, tier, state.known, [*COPY, "due_at_ms", "scheduled_at_ms"])
        if state.pulled:
            rows = exclude(rows, read_cold(spark, tier, state.pulled, COPY), COPY)
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
            options = kafka_options(config, broker)
            records = _records(spark, options, topics_pattern(mine))
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
    return "|".join(sorted(map(_pattern, topics)))


def _pattern(glob: str) -> str:
    wild = {"*": ".*", "?": "."}
    return "".join(
        wild.get(character, character if character.isalnum() else f"\\{character}")
        for character in glob
    )


def _records(spark: SparkSession, options: dict[str, str], pattern: str) -> DataFrame:
    reader = spark.read.format("kafka").options(**options)
    return reader.option("subscribePattern", pattern).option("includeHeaders", "true").load()


def _snapshot(spark: SparkSession, path: str, columns: Sequence[str], **options: str) -> DataFrame:
    rows = read_source(spark, **options).select(*columns)
    rows.write.mode("overwrite").parquet(path)
    return spark.read.parquet(path)


def _names(routes: Sequence[Route]) -> str:
    return ",".join(route.name for route in routes)
