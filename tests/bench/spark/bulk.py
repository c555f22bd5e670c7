"""`schedule` and `read`: rows into the store, and out of it again."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge_connectors.spark.source.dataframes import write_envelopes
from tests.bench.spark.stage import Round, Stage

PARTS = 8
ROUTE = "bench"


def envelopes(spark: SparkSession, rows: int, first: int) -> DataFrame:
    """Return rows with bodies of 200 bytes that do not compress, due over a month."""
    number = F.col("id")
    halves = [F.sha2(F.concat(number.cast("string"), F.lit(part)), 512) for part in "ab"]
    return spark.range(first, first + rows, 1, PARTS).select(
        F.concat(F.lit("order-"), number.cast("string")).alias("id"),
        F.substring(F.concat(*halves), 1, 200).alias("body"),
        (F.unix_millis(F.current_timestamp()) + 86_400_000 + number % 2_592_000_000).alias(
            "due_at"
        ),
    )


def measure_schedule(stage: Stage, rows: int) -> Round:
    """Schedule rows into an empty store."""
    stage.client.flushall()
    frame = envelopes(stage.spark, rows, 0).cache()
    frame.count()
    found: list[Round] = []
    with stage.watched(found, rows):
        summary = write_envelopes(frame, config=stage.config, route=ROUTE)
    frame.unpersist()
    assert summary.accepted == rows, summary
    return found[0]


def measure_read(stage: Stage, rows: int) -> Round:
    """Read what is pending, all columns; it is scheduled first, once."""
    if stage.client.dbsize() == 0:
        write_envelopes(envelopes(stage.spark, rows, 0), config=stage.config, route=ROUTE)
    given = {"config": stage.config, "state": "pending"}
    found: list[Round] = []
    with stage.watched(found, rows):
        reader = stage.spark.read.format("duebridge").options(**given).load()
        reader.write.format("noop").mode("overwrite").save()
    return found[0]
