"""The jobs that are measured: each prepares what it needs, and returns what is to be timed."""

import secrets
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.config.load import load_config
from duebridge_connectors.spark.jobs.demote import run_demote
from duebridge_connectors.spark.jobs.hydrate import run_hydrate
from duebridge_connectors.spark.jobs.intake import Intake, run_intake
from duebridge_connectors.spark.jobs.journal import run_journal
from duebridge_connectors.spark.kafka_source import kafka_options
from duebridge_connectors.spark.source.dataframes import write_envelopes
from tests.bench.spark.stage import Stage

Job = Callable[[], None]
PARTS = 8
ROUTE, COLD_ROUTE = "bench", "cold"
HEADERS = {"x-delay": "1d", "tenant": "a", "kind": "reminder", "version": "1", "order": "42"}


def envelopes(spark: SparkSession, rows: int) -> DataFrame:
    """Return rows with bodies of 200 bytes that do not compress, due over a month."""
    number = F.col("id")
    halves = [F.sha2(F.concat(number.cast("string"), F.lit(part)), 512) for part in "ab"]
    now_ms = F.unix_millis(F.current_timestamp())
    return spark.range(0, rows, 1, PARTS).select(
        F.concat(F.lit("order-"), number.cast("string")).alias("id"),
        F.substring(F.concat(*halves), 1, 200).alias("body"),
        (now_ms + 86_400_000 + number % 2_592_000_000).alias("due_at"),
    )


def schedule(stage: Stage, rows: int) -> Job:
    """Schedule rows into an empty store."""
    stage.client.flushall()
    stage.spark.catalog.clearCache()
    frame = envelopes(stage.spark, rows).cache()
    frame.count()

    def job() -> None:
        summary = write_envelopes(frame, config=stage.config, route=ROUTE)
        assert summary.accepted == rows, summary

    return job


def read(stage: Stage, rows: int) -> Job:
    """Read what is pending, all columns; it is scheduled first, once."""
    if stage.client.dbsize() == 0:
        write_envelopes(envelopes(stage.spark, rows), config=stage.config, route=ROUTE)
    given = {"config": stage.config, "state": "pending"}
    reader = stage.spark.read.format("duebridge").options(**given)
    return lambda: reader.load().write.format("noop").mode("overwrite").save()


def journal(stage: Stage, rows: int) -> Job:
    """Bring a journal into a new table; what it tells of is scheduled first, once."""
    if stage.client.dbsize() == 0:
        write_envelopes(envelopes(stage.spark, rows), config=stage.config, route=ROUTE)
    table = f"{stage.home}/journal-{secrets.token_hex(6)}"

    def job() -> None:
        done = run_journal(stage.spark, table, config=stage.config)
        assert (done.rows, done.gaps) == (rows, 0), done

    return job


def demote(stage: Stage, rows: int) -> Job:
    """Move rows of a month to the cold tier, from a store that has no others.

    A job has run before: until then every schedule leaves a note, for the first job to read.
    """
    stage.client.flushall()
    shutil.rmtree(stage.home / "cold", ignore_errors=True)
    run_demote(stage.spark, config=stage.config, route=COLD_ROUTE)
    write_envelopes(envelopes(stage.spark, rows), config=stage.config, route=COLD_ROUTE)

    def job() -> None:
        done = run_demote(stage.spark, config=stage.config, route=COLD_ROUTE)
        assert (done.removed, done.void) == (rows, 0), done

    return job


def hydrate(stage: Stage, rows: int) -> Job:
    """Bring back rows that were demoted, all at once: the horizon is beyond them."""
    demote(stage, rows)()
    later = stage.home / "later.yaml"
    later.write_text(Path(stage.config).read_text().replace("horizon: 1h", "horizon: 90d"))

    def job() -> None:
        done = run_hydrate(stage.spark, config=str(later), route=COLD_ROUTE)
        assert (done.accepted, done.left) == (rows, 0), done

    return job


def intake(stage: Stage, rows: int) -> Job:
    """Take in a topic that is filled once, into an empty store."""
    topic = _filled(stage, rows)
    stage.client.flushall()
    checkpoint = str(stage.home / secrets.token_hex(6))
    wanted = Intake(topic=topic, checkpoint=checkpoint, delay_header="x-delay")

    def job() -> None:
        summary = run_intake(stage.spark, wanted, config=stage.config, route=ROUTE)
        assert summary.rows.accepted == rows, summary

    return job


@cache
def _filled(stage: Stage, rows: int) -> str:
    """Return a topic of records with a key, a body of 200 bytes and five headers."""
    options = kafka_options(load_config(stage.config), "here")
    topic = f"bench-{secrets.token_hex(6)}"
    servers = options["kafka.bootstrap.servers"]
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_topics({topic: {"num_partitions": 4, "replication_factor": 1}})
    headers = [
        F.struct(F.lit(name).alias("key"), F.lit(text).cast("binary").alias("value"))
        for name, text in HEADERS.items()
    ]
    records = envelopes(stage.spark, rows).selectExpr("id AS key", "body AS value")
    writer = records.withColumn("headers", F.array(*headers)).write.format("kafka")
    writer.options(**options).option("topic", topic).save()
    return topic
