"""What `reconcile` reads: the store, the brokers and the journal, each as rows of facts.

The store and its journal change while they are read, so they are written down once, below `home`,
a place that the driver and all executors share.
"""

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from duebridge.config.models import Config, Route
from duebridge.errors import ConfigError
from duebridge.store.registry import Registry
from duebridge_connectors.spark.cold.tier import open_tier, read_cold
from duebridge_connectors.spark.kafka_source import kafka_options
from duebridge_connectors.spark.source.dataframes import activate
from duebridge_connectors.spark.source.datasource import NAME
from duebridge_connectors.spark.source.planning import StoreAddress
from duebridge_connectors.spark.source.schema import DECODED, JOURNAL
from duebridge_connectors.spark.transforms.cold_copies import COPY, as_held, exclude
from duebridge_connectors.spark.transforms.facts import arrived_in_export, arrived_in_kafka

_HELD = ("route", "id", "state", "waits_for", "scheduled_at")


def routes_in_store(place: StoreAddress, routes: Sequence[Route]) -> list[Route]:
    """Return those of the routes that the store knows: of others there is nothing to read."""
    with place.opened() as connection:
        known = Registry(connection, place.namespace).routes()
    return [route for route in routes if route.name in known]


def check_readable(config: Config, routes: Sequence[Route], exports: Sequence[str]) -> None:
    """Raise `ConfigError` where a route's broker is one that Spark cannot read, without export."""
    unread = [route.name for route in routes if config.brokers[route.target.broker].type != "kafka"]
    if unread and not exports:
        raise ConfigError(
            f"expected an export of a consumer for {', '.join(unread)}, whose broker Spark cannot"
            " read; got none: say --export, or --route for others"
        )


def snapshot_held(
    spark: SparkSession, config: str, routes: Sequence[Route], home: str
) -> DataFrame:
    """Return what the store and its cold tiers hold of these routes; no bodies.

    The store is read once, and before the files: what is moved meanwhile is in one or in both.
    """
    if not routes:
        return spark.createDataFrame([], StructType([DECODED[name] for name in _HELD]))
    options = {"config": config, "route": _names(routes)}
    return _union(
        [_written(spark, f"{home}/held", _HELD, **options), *read_cold_tiers(spark, config, routes)]
    )


def read_cold_tiers(spark: SparkSession, config: str, routes: Sequence[Route]) -> list[DataFrame]:
    """Return what waits in the cold tiers of these routes, in the state `cold`.

    That a cancel or another copy made a row void is only known to hydrate: it is here all the same.
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
    """Return the journal that the store has of these routes, read once; what was cut is a gap."""
    if not routes:
        return spark.createDataFrame([], JOURNAL)
    options = {"config": config, "route": _names(routes), "stream": "journal", "on_trim": "gap"}
    return _written(spark, f"{home}/journal", ("*",), **options)


def read_arrived(
    spark: SparkSession,
    config: Config,
    routes: Sequence[Route],
    exports: Sequence[str],
    *,
    with_fingerprint: bool,
) -> DataFrame:
    """Return what the brokers of these routes have.

    A Kafka broker's topics are read whole, by its end when the query begins.
    """
    found = [read_export(spark, path) for path in exports]
    for broker in sorted({route.target.broker for route in routes}):
        mine = [route for route in routes if route.target.broker == broker]
        if config.brokers[broker].type == "kafka":
            options = kafka_options(config, broker)
            records = _records(spark, options, topics_pattern(mine))
            found.append(arrived_in_kafka(records, with_fingerprint=with_fingerprint))
    return _union(found)


def read_export(spark: SparkSession, path: str) -> DataFrame:
    """Return what a consumer of a broker wrote down: JSON lines, or Parquet by its name."""
    is_parquet = path.rstrip("/").endswith(".parquet")
    rows = spark.read.parquet(path) if is_parquet else spark.read.json(path)
    for name in ("route", "id", "at"):
        if name not in rows.columns:
            raise ConfigError(f"{path}: expected columns route, id and at; got {rows.columns}")
    return arrived_in_export(rows)


def topics_pattern(routes: Iterable[Route]) -> str:
    """Return a regular expression of Java for every topic that these routes may fill.

    An envelope's own target may be any that `allow_targets` permits, whose names may be globs.
    """
    topics = {of.topic for route in routes for of in route.targets().values() if of.topic}
    return "|".join(sorted(map(_pattern, topics)))


def _pattern(glob: str) -> str:
    wild = {"*": ".*", "?": "."}
    return "".join(wild.get(each, each if each.isalnum() else f"\\{each}") for each in glob)


def _records(spark: SparkSession, options: dict[str, str], pattern: str) -> DataFrame:
    reader = spark.read.format("kafka").options(**options)
    return reader.option("subscribePattern", pattern).option("includeHeaders", "true").load()


def _written(spark: SparkSession, place: str, columns: Sequence[str], **options: str) -> DataFrame:
    rows = activate(spark).read.format(NAME).options(**options).load()
    rows.select(*columns).write.mode("overwrite").parquet(place)
    return spark.read.parquet(place)


def _union(found: Sequence[DataFrame]) -> DataFrame:
    first, *others = found
    for each in others:
        first = first.unionByName(each)
    return first


def _names(routes: Sequence[Route]) -> str:
    return ",".join(route.name for route in routes)
