"""`intake`: records of a real Kafka topic into the store."""

import secrets
from contextlib import closing
from functools import cache
from pathlib import Path

from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.config.load import load_config
from duebridge_connectors.spark.jobs.intake import Intake, run_intake
from duebridge_connectors.spark.kafka_source import kafka_options
from tests.bench.spark.bulk import ROUTE, envelopes
from tests.bench.spark.stage import BROKER, Round, Stage

PARTITIONS = 4


def measure_intake(stage: Stage, rows: int) -> Round:
    """Take in a topic that is filled once, into an empty store."""
    topic = _filled(stage, rows)
    stage.client.flushall()
    checkpoint = Path(stage.config).with_name(secrets.token_hex(6))
    wanted = Intake(topic=topic, checkpoint=str(checkpoint), delay_header="x-delay")
    found: list[Round] = []
    with stage.watched(found, rows):
        summary = run_intake(stage.spark, wanted, config=stage.config, route=ROUTE)
    assert summary.rows.accepted == rows, summary
    return found[0]


@cache
def _filled(stage: Stage, rows: int) -> str:
    """Return a topic of records with a key, a body of 200 bytes and five headers."""
    options = kafka_options(load_config(stage.config), BROKER)
    topic = f"bench-{secrets.token_hex(6)}"
    servers = options["kafka.bootstrap.servers"]
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_topics({topic: {"num_partitions": PARTITIONS, "replication_factor": 1}})
    writer = records(stage.spark, rows).write.format("kafka").options(**options)
    writer.option("topic", topic).save()
    return topic


def records(spark: SparkSession, rows: int) -> DataFrame:
    """Return what a producer of reminders sends."""
    texts = {"x-delay": F.lit("1d"), "tenant": F.lit("a"), "kind": F.lit("reminder"),
             "version": F.lit("1"), "order": F.col("id")}  # fmt: skip
    headers = F.array(
        *(
            F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))
            for name, text in texts.items()
        )
    )
    return envelopes(spark, rows, 0).select(
        F.col("id").alias("key"), F.col("body").alias("value"), headers.alias("headers")
    )
