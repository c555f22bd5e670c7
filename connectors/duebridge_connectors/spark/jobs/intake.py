"""The job `intake`: the records of a Kafka topic become envelopes of a route, once each.

    topic ─▶ micro-batch: offsets planned in the checkpoint ─▶ is it the topic still? ─▶ write
                                                                                    ─▶ and still?

A batch that a killed driver left half-way runs again with the same offsets, and so with the same
ids: what is stored counts as a duplicate. The checkpoint of a topic is kept below its own id, so
that a topic that was deleted and made anew is read from its beginning, under other ids.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from duebridge.config.load import load_config
from duebridge.durations import parse_duration_ms
from duebridge.errors import ConfigError, JobFailed
from duebridge_connectors.spark.kafka_source import (
    KafkaTopic,
    broker_of_route,
    kafka_options,
    topic_of,
)
from duebridge_connectors.spark.source.dataframes import write_envelopes
from duebridge_connectors.spark.source.loader import Summary
from duebridge_connectors.spark.source.planning import plan_write
from duebridge_connectors.spark.transforms.envelopes import envelopes_of_records

MAX_OFFSETS = 1_000_000
STARTS = ("earliest", "latest")


class Intake(msgspec.Struct, frozen=True, kw_only=True):
    """Which topic is read, from where, and how it becomes envelopes."""

    topic: str
    checkpoint: str
    """A directory of this intake alone, on storage that outlives the driver."""
    broker: str | None = None
    """Of the configuration; by default that of the route's target."""
    columns: Mapping[str, str] = {}
    delay_header: str | None = None
    due_header: str | None = None
    where: str | None = None
    start: str = "earliest"
    """Where to begin where none of this name was ever read: or `latest`."""
    every: str | None = None
    """Go on for ever, a batch so often; else end with what there is now."""
    max_offsets: int = MAX_OFFSETS
    """Records in a batch, at most."""
    read_options: Mapping[str, str] = {}
    """Of Spark's Kafka source."""


class IntakeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken in, and the id of the topic it came from."""

    topic: str
    topic_id: str
    is_made_anew: bool
    """The topic is another one than the last time; it was read from its beginning."""
    batches: int
    rows: Summary

    def __str__(self) -> str:
        """Return one line for people."""
        anew = ", made anew since the last time" if self.is_made_anew else ""
        return f"topic {self.topic} ({self.topic_id}{anew}): batches: {self.batches}; {self.rows}"


def run_intake(
    spark: SparkSession,
    intake: Intake,
    *,
    on_batch: Callable[[Summary], None] = lambda _: None,
    **write_options: str | int,
) -> IntakeSummary:
    """Schedule every record of a topic once, until its end or for ever.

    `write_options` are the data source's (`config` and `route` at least), `on_batch` hears of each
    batch. Raises `ConfigError`, `BrokerUnavailable`, `StoreUnavailable` and `StoreUnfit` before any
    record is read; later `JobFailed`, where the topic was deleted meanwhile. Running it again does
    what is left.
    """
    _check(intake)
    options = _source_options(intake, write_options)
    topic = topic_of(spark, options, intake.topic)
    known = checkpoints(spark, intake.checkpoint)
    is_made_anew = bool(known) and topic.id not in known
    start = "earliest" if is_made_anew else intake.start
    records = _records(spark, intake, {**options, "startingOffsets": start})
    envelopes = envelopes_of_records(
        records,
        topic.id,
        intake.columns,
        delay_header=intake.delay_header,
        due_header=intake.due_header,
        where=intake.where,
    )
    given = {name: str(value) for name, value in write_options.items()}
    plan_write(given, envelopes.schema)
    batches = IntakeWriter(
        lambda: topic_of(spark, options, intake.topic), topic, intake, given, on_batch
    )
    _read_all(envelopes, batches, intake, topic)
    return batches.summary(is_made_anew)


def checkpoints(spark: SparkSession, place: str) -> set[str]:
    """Return the ids of the topics that were read with this checkpoint."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(place)
    files = path.getFileSystem(session.sessionState().newHadoopConf())
    found = files.listStatus(path) if files.exists(path) else ()
    return {each.getPath().getName() for each in found}


class IntakeWriter:
    """Writes micro-batches one by one, each from the topic that the intake began with."""

    def __init__(
        self,
        ask: Callable[[], KafkaTopic],
        topic: KafkaTopic,
        intake: Intake,
        given: Mapping[str, str],
        on_batch: Callable[[Summary], None],
    ) -> None:
        self._ask = ask
        self._topic = topic
        self._given = given
        self._on_batch = on_batch
        self._run = sha256(f"{intake.checkpoint}/{topic.id}".encode()).hexdigest()[:12]
        self._done: list[Summary] = []

    def write(self, envelopes: DataFrame, number: int) -> None:
        """Write a batch; raises `JobFailed` where its records may be of another topic.

        After the write it is asked again: a topic that is made anew while a batch is read fails
        that batch, before its offsets count as read.
        """
        self._check_topic()
        options = dict(self._given)
        if "rejects" in options:
            options["run"] = f"{self._run}-{number:09}"
        if "summary" in options:
            options["summary"] = f"{options['summary']}/batch-{number:09}.json"
        self._done.append(write_envelopes(envelopes, **options))
        self._on_batch(self._done[-1])
        self._check_topic()

    def summary(self, is_made_anew: bool) -> IntakeSummary:
        """Return what was done so far."""
        return IntakeSummary(
            topic=self._topic.name,
            topic_id=self._topic.id,
            is_made_anew=is_made_anew,
            batches=len(self._done),
            rows=Summary.of(self._given["route"], self._done),
        )

    def _check_topic(self) -> None:
        now = self._ask()
        if now.id != self._topic.id:
            raise JobFailed(
                f"topic {now.name}: expected the one with id {self._topic.id}; got a new one,"
                f" {now.id}; run it again, and it is read from its beginning"
            )


def _check(intake: Intake) -> None:
    if intake.start not in STARTS:
        raise ConfigError(f"start: expected one of {', '.join(STARTS)}; got {intake.start!r}")
    if intake.max_offsets < 1:
        raise ConfigError(f"max offsets: expected 1 or more; got {intake.max_offsets}")
    headers = {"delay": intake.delay_header, "due_at": intake.due_header}
    for name, header in headers.items():
        if header is not None and name in intake.columns:
            raise ConfigError(f"{name}: expected either a header or a column; got both")


def _source_options(intake: Intake, write_options: Mapping[str, object]) -> dict[str, str]:
    config = load_config(str(write_options["config"]))
    broker = intake.broker or broker_of_route(config, str(write_options["route"]))
    return kafka_options(config, broker)


def _records(spark: SparkSession, intake: Intake, options: Mapping[str, str]) -> DataFrame:
    more = {
        "subscribe": intake.topic,
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(intake.max_offsets),
        "minPartitions": str(spark.sparkContext.defaultParallelism),
        **intake.read_options,
    }
    return spark.readStream.format("kafka").options(**options).options(**more).load()


def _read_all(
    envelopes: DataFrame, batches: IntakeWriter, intake: Intake, topic: KafkaTopic
) -> None:
    trigger: dict[str, Any] = {"availableNow": True}
    if intake.every is not None:
        trigger = {"processingTime": f"{parse_duration_ms(intake.every, 'every')} milliseconds"}
    query = (
        envelopes.writeStream.foreachBatch(batches.write)
        .option("checkpointLocation", f"{intake.checkpoint.rstrip('/')}/{topic.id}")
        .queryName(f"intake of {topic.name}")
        .trigger(**trigger)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
