"""The job `intake`: every record of a Kafka topic becomes an envelope of a route, once.

    topic ─▶ micro-batch: offsets planned in the checkpoint ─▶ check id ─▶ write ─▶ check again

A batch interrupted by the end of the driver runs again with the same offsets and thus the same ids:
stored records count as duplicates. The checkpoint is kept below the topic's id, so a topic that was
deleted and recreated is read from its beginning, under other ids.
"""

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from duebridge.config.load import load_config
from duebridge.errors import ConfigError, JobFailed
from duebridge_connectors.spark.kafka_source import (
    COMMITTED,
    KafkaTopic,
    broker_of_route,
    kafka_options,
    read_records,
    topic_of,
)
from duebridge_connectors.spark.source.dataframes import run_query, write_envelopes
from duebridge_connectors.spark.source.loader import Summary
from duebridge_connectors.spark.source.option_names import spark_options
from duebridge_connectors.spark.source.planning import plan_write
from duebridge_connectors.spark.transforms.envelopes import envelopes_of_records

_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")  # Base64 of a UUID
MAX_OFFSETS = 1_000_000
STARTS = ("earliest", "latest")


class Intake(msgspec.Struct, frozen=True, kw_only=True):
    """The topic to read, where to start, and how its records become envelopes."""

    topic: str
    checkpoint: str
    """A directory for this intake alone, on storage that outlives the driver."""
    broker: str | None = None
    """A broker of the configuration; by default that of the route's target."""
    columns: Mapping[str, str] = {}
    delay_header: str | None = None
    due_header: str | None = None
    where: str | None = None
    start: str = "earliest"
    """Where a new checkpoint starts: `earliest` or `latest`."""
    every: str | None = None
    """Interval between batches, without end; by default stop at the present end of the topic."""
    max_offsets: int = MAX_OFFSETS
    """Most records in a batch."""
    read_options: Mapping[str, str] = {}
    """Options of Spark's Kafka source."""


class IntakeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of an intake, and the id of the topic that it read."""

    topic: str
    topic_id: str
    is_made_anew: bool
    """The topic was recreated since the last run, and read from its beginning."""
    batches: int
    rows: Summary

    def __str__(self) -> str:
        anew = ", recreated since the last run" if self.is_made_anew else ""
        return f"topic {self.topic} ({self.topic_id}{anew}): batches: {self.batches}; {self.rows}"


def run_intake(
    spark: SparkSession,
    intake: Intake,
    *,
    on_batch: Callable[[Summary], None] = lambda _: None,
    **write_options: str | int,
) -> IntakeSummary:
    """Schedule every record of a topic once, up to its end or without end.

    `write_options` are the data source's (`config` and `route` at least); `on_batch` is called
    after each batch. Raises `ConfigError`, `BrokerUnavailable`, `StoreUnavailable` and `StoreUnfit`
    before any record is read, and `JobFailed` if the topic is recreated meanwhile. A further run
    continues where this one stopped.
    """
    _check(intake)
    options = _source_options(intake, write_options)
    topic = topic_of(spark, options, intake.topic)
    known = checkpoints(spark, intake.checkpoint)
    is_made_anew = bool(known) and topic.id not in known
    start = "earliest" if is_made_anew else intake.start
    options_of_read = {
        **options,
        **COMMITTED,
        "subscribe": intake.topic,
        "startingOffsets": start,
        "maxOffsetsPerTrigger": str(intake.max_offsets),
        **intake.read_options,
    }
    envelopes = envelopes_of_records(
        read_records(spark, spark.readStream, options_of_read, in_order=may_replace(write_options)),
        topic.id,
        intake.columns,
        delay_header=intake.delay_header,
        due_header=intake.due_header,
        where=intake.where,
    )
    plan_write(write_options, envelopes.schema)
    writer = IntakeWriter(
        lambda: topic_of(spark, options, intake.topic), topic, intake, write_options, on_batch
    )
    checkpoint = f"{intake.checkpoint.rstrip('/')}/{topic.id}"
    stream = envelopes.writeStream.foreachBatch(writer.write).queryName(f"intake of {topic.name}")
    run_query(stream.option("checkpointLocation", checkpoint), intake.every)
    return writer.summary(is_made_anew)


def checkpoints(spark: SparkSession, directory: str) -> set[str]:
    """Return the ids of the topics read with this checkpoint; a volume's `lost+found` is none."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(directory)
    files = path.getFileSystem(session.sessionState().newHadoopConf())
    found = files.listStatus(path) if files.exists(path) else ()
    names = (status.getPath().getName() for status in found)
    return {name for name in names if _TOPIC_ID.fullmatch(name)}


class IntakeWriter:
    """Writes micro-batches, after checking that the topic is still the one first read."""

    def __init__(
        self,
        ask: Callable[[], KafkaTopic],
        topic: KafkaTopic,
        intake: Intake,
        given: Mapping[str, str | int],
        on_batch: Callable[[Summary], None],
    ) -> None:
        self._ask = ask
        self._topic = topic
        self._given = given
        self._on_batch = on_batch
        is_anew = "id" in intake.columns or may_replace(given)  # the store cannot tell
        self._ids: dict[str, str] = {} if is_anew else {"id_use": "once"}
        self._run = sha256(f"{intake.checkpoint}/{topic.id}".encode()).hexdigest()[:12]
        self._done: list[Summary] = []

    def write(self, envelopes: DataFrame, number: int) -> None:
        """Write a batch; raises `JobFailed` if its records may belong to another topic.

        The check is repeated after the write: a topic recreated while a batch is read fails that
        batch before its offsets are committed.
        """
        self._check_topic()
        options = {**self._ids, **self._given}
        if "rejects" in options:
            options["run"] = f"{self._run}-{number:09}"
        if "summary" in options:
            options["summary"] = f"{options['summary']}/batch-{number:09}.json"
        self._done.append(write_envelopes(envelopes, **options))
        self._on_batch(self._done[-1])
        self._check_topic()

    def summary(self, is_made_anew: bool) -> IntakeSummary:
        """Return the counts so far."""
        return IntakeSummary(
            topic=self._topic.name,
            topic_id=self._topic.id,
            is_made_anew=is_made_anew,
            batches=len(self._done),
            rows=Summary.of(str(self._given["route"]), self._done),
        )

    def _check_topic(self) -> None:
        now = self._ask()
        if now.id != self._topic.id:
            raise JobFailed(
                f"topic {now.name}: expected the one with id {self._topic.id}; got a new one,"
                f" {now.id}; run it again to read that from its beginning"
            )


def may_replace(options: Mapping[str, object]) -> bool:
    """Whether a later record of an id replaces an earlier one: then their order counts."""
    return spark_options(options).get("onConflict") == "replace"


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
