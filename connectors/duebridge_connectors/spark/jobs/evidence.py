"""The evidence of `reconcile`: the store, the cold tiers, the brokers and the journal as rows.

The store and its journal change while they are read, so each is copied once to Parquet below
`home`, a directory that the driver and all executors share.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import partial, reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from duebridge.config.models import Config, Route
from duebridge.envelope import Target
from duebridge.errors import ConfigError
from duebridge.store.journal import Journal
from duebridge.store.purges import PurgeLog
from duebridge.store.registry import Registry
from duebridge_connectors.spark.cold.tier import open_tier, read_marks, read_still_cold
from duebridge_connectors.spark.files.location import FileLocation
from duebridge_connectors.spark.jobs.journal import read_ranges, read_version
from duebridge_connectors.spark.kafka_source import kafka_options, read_records
from duebridge_connectors.spark.rows.schema import DECODED, JOURNAL, RANGES
from duebridge_connectors.spark.source.dataframes import read_source
from duebridge_connectors.spark.source.journal.offset import Offset, ShardOffset
from duebridge_connectors.spark.source.journal.reader import JournalStreamReader
from duebridge_connectors.spark.source.option_names import spark_options
from duebridge_connectors.spark.source.planning import StoreAddress, plan_journal
from duebridge_connectors.spark.table.journal_table import JournalTable, JournalVersion
from duebridge_connectors.spark.transforms.arrivals import (
    RoutePlaces,
    arrived_in_export,
    arrived_in_kafka,
)
from duebridge_connectors.spark.transforms.cold_copies import COPY, as_held, without_ended
from duebridge_connectors.spark.transforms.facts import MARGIN_MS
from duebridge_connectors.spark.transforms.missing_evidence import (
    PurgedRoute,
    StoreJournal,
    StoreJournals,
)

_HELD = ("route", "id", "state", "waits_for", "scheduled_at")


def routes_in_store(address: StoreAddress, routes: Sequence[Route]) -> list[Route]:
    """Return the routes that the store knows; the others have nothing to read."""
    with address.connect() as connection:
        known = Registry(connection, address.namespace).routes()
    return [route for route in routes if route.name in known]


def check_readable(config: Config, routes: Sequence[Route], exports: Sequence[str]) -> None:
    """Raise `ConfigError` for a route whose broker Spark cannot read, unless there are exports."""
    unread = [
        route.name
        for route in routes
        if any(config.brokers[of.broker].type != "kafka" for of in route.targets().values())
    ]
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

    Cancelled ones count until a hydrate journals their end; void copies, and rows whose ids began
    anew in the store, do not.
    """
    found = []
    for route in routes:
        if route.cold_tier is None:
            continue
        tier = open_tier(config, route.name, only_reads=True)
        rows = read_still_cold(spark, tier, [*COPY, "due_at_ms", "scheduled_at_ms"])
        if (marks := read_marks(tier)).found:
            rows = without_ended(rows, marks.frame(spark))
        found.append(as_held(rows, route.name))
    return found


def snapshot_journal(
    spark: SparkSession, config: str, routes: Sequence[Route], home: str
) -> DataFrame:
    """Copy the journal of these routes; entries cut by the cap are a gap."""
    if not routes:
        return spark.createDataFrame([], JOURNAL)
    return _snapshot(spark, f"{home}/journal", ("*",), **_of_journal(config, routes))


class TableJournal(NamedTuple):
    """The journal of a table, and the instant before which its shards lack nothing; 0: unknown."""

    rows: DataFrame
    complete_until_ms: int


def journal_of_table(
    spark: SparkSession, config: str, routes: Sequence[Route], table: FileLocation, home: str
) -> TableJournal:
    """Return a table as it is now, with what the store's journal has beyond it of its shards.

    So a cancel or a move that came after the table's last run is known: it is no loss.
    """
    there = JournalTable(table)
    version = there.existing()
    rows = read_version(spark, there, version)
    if routes:
        since = _journal_since(spark, config, routes, version)
        rows = rows.unionByName(_copied(since, f"{home}/journal"), allowMissingColumns=True)
    return TableJournal(rows, version.complete_until_ms)


def _journal_since(
    spark: SparkSession, config: str, routes: Sequence[Route], version: JournalVersion
) -> DataFrame:
    reader = JournalStreamReader(*plan_journal(spark_options(_of_journal(config, routes))))
    found = reader.reportLatestOffset() or {}
    there = {name: ShardOffset.read(values) for name, values in found.items()}
    reached = version.reached(reader.namespace, there)
    more = {name: last for name, last in reached.items() if last < there[name].until}
    start: Offset = {name: ShardOffset(until=last).values() for name, last in more.items()}
    ranges = reader.partitions(start, {name: found[name] for name in more})
    rows = spark.createDataFrame([each.row() for each in ranges], RANGES)
    return rows.mapInArrow(partial(read_ranges, reader), JOURNAL)


def _of_journal(config: str, routes: Sequence[Route]) -> dict[str, str]:
    return {"config": config, "route": _names(routes), "stream": "journal", "on_trim": "gap"}


def read_store_journals(address: StoreAddress, routes: Sequence[Route]) -> StoreJournals:
    """Return the journals of these routes that the store has, and their purges."""
    names = {route.name for route in routes}
    with address.connect() as connection:
        known = Registry(connection, address.namespace).routes()
        journals = [
            Journal(connection, shard)
            for name in sorted(names & known.keys())
            for shard in address.shards(name, known[name].shards)
        ]
        there = [
            StoreJournal(
                each.shard.route,
                each.shard.number,
                end.numbering.count(0, end.last),
                each.began_ms(),
            )
            for each in journals
            if (end := each.end()).last
        ]
        purges = PurgeLog(connection, address.namespace).after()
        gone = [PurgedRoute(each.route, each.at_ms) for each in purges if each.route in names]
    return StoreJournals(there, gone)


def read_arrived(
    spark: SparkSession,
    config: Config,
    routes: Sequence[Route],
    exports: Sequence[str],
    *,
    with_fingerprint: bool,
    since_ms: int = 0,
) -> DataFrame:
    """Return the messages of these routes that the brokers have, and strays in their topics.

    Kafka topics are read up to their ends when the query starts, from `since_ms` on: nothing is
    published before it was accepted. Brokers' clocks may differ from the store's by an hour.
    """
    judged = {route.name for route in routes}
    found = [read_export(spark, path, route_places(config, judged)) for path in exports]
    for broker in sorted({of.broker for route in routes for of in route.targets().values()}):
        if config.brokers[broker].type == "kafka":
            pattern = topics_pattern(routes, broker)
            options = {**kafka_options(config, broker), "subscribePattern": pattern}
            records = read_records(spark, spark.read, options, since_ms - MARGIN_MS)
            places = route_places(config, judged, broker)
            found.append(
                arrived_in_kafka(records, with_fingerprint=with_fingerprint, places=places)
            )
    return reduce(DataFrame.unionByName, found)


def read_export(spark: SparkSession, path: str, places: Sequence[RoutePlaces] = ()) -> DataFrame:
    """Read the export of a consumer: JSON lines, or Parquet if the name says so."""
    is_parquet = path.rstrip("/").endswith(".parquet")
    rows = spark.read.parquet(path) if is_parquet else spark.read.json(path)
    for name in ("route", "id", "at"):
        if name not in rows.columns:
            raise ConfigError(f"{path}: expected columns route, id and at; got {rows.columns}")
    return arrived_in_export(rows, places)


def route_places(
    config: Config, judged: Collection[str], broker: str | None = None
) -> list[RoutePlaces]:
    """Return the topics of each route's messages, on one broker or on all.

    Dead letters of intakes are of the routes that they could not schedule on.
    """
    refused = [intake.dead_letter for intake in config.intakes.values()]

    def pattern(targets: Iterable[Target | None]) -> str | None:
        return _pattern(of.topic for of in targets if of and broker in (None, of.broker))

    return [
        RoutePlaces(
            name,
            name in judged,
            pattern((route.target, *route.allow_targets)),
            pattern((route.dead_letter, *refused)),
        )
        for name, route in sorted(config.routes.items())
    ]


def topics_pattern(routes: Iterable[Route], broker: str | None = None) -> str:
    """Return a Java regular expression for every topic that these routes may publish to.

    An envelope may choose any target that `allow_targets` permits; those names may be globs.
    """
    targets = [of for route in routes for of in route.targets().values()]
    return _pattern(of.topic for of in targets if broker in (None, of.broker)) or ""


def _pattern(topics: Iterable[str | None]) -> str | None:
    """Return a Java regular expression for names that may be globs; None for none."""
    wild = {"*": ".*", "?": "."}
    found = [
        "".join(wild.get(each, each if each.isalnum() else f"\\{each}") for each in topic)
        for topic in sorted({topic for topic in topics if topic})
    ]
    return "|".join(found) or None


def _snapshot(spark: SparkSession, path: str, columns: Sequence[str], **options: str) -> DataFrame:
    return _copied(read_source(spark, **options).select(*columns), path)


def _copied(rows: DataFrame, path: str) -> DataFrame:
    rows.write.mode("overwrite").parquet(path)
    return rows.sparkSession.read.parquet(path)


def _names(routes: Sequence[Route]) -> str:
    return ",".join(route.name for route in routes)
