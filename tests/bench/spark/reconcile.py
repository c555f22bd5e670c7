"""`reconcile`: journal rows judged a second, beside what a Kafka of as many messages has.

Half of the rows say accepted, half delivered; everything arrived, but for one id in a million that
is lost. What is read is Parquet on disk; the journal is written by Spark as the job journal has it.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge_connectors.spark.jobs.reconcile import reconcile_evidence
from duebridge_connectors.spark.transforms.verdict import Evidence, JudgedPeriod
from tests.bench.spark.stage import Round, Stage

FIRST_MS = 1_770_000_000_000
LOST_EVERY = 1_000_000
WINDOW = JudgedPeriod(0, FIRST_MS * 2, FIRST_MS * 2, None)
HELD = "route string, id string, state string, waits_for timestamp, scheduled_at timestamp"


def measure_reconcile(stage: Stage, rows: int) -> Round:
    """Judge a journal that is written once; an id in a million is lost, and must be named."""
    home = Path(stage.config).parent
    if not (home / "journal").exists():
        write(stage.spark, rows // 2, home)
    found: list[Round] = []
    with stage.watched(found, rows):
        verdict = judge(stage.spark, home)
    assert rows < 2 * LOST_EVERY or "lost" in verdict, verdict
    return found[0]


def write(spark: SparkSession, ids: int, home: Path) -> None:
    """Write the journal and the arrivals of so many ids."""
    numbers = spark.range(ids).withColumn("shard", (F.col("id") % 4).cast("int"))
    made = numbers.select(
        F.lit("reminders").alias("route"),
        "shard",
        F.format_string("order-%012d", "id").alias("name"),
        (FIRST_MS + F.col("id")).alias("at_ms"),
    )
    rows = [("accepted", 0), ("delivered", 60_000)]
    journal = [
        _journal(made, kind, after_ms, number) for number, (kind, after_ms) in enumerate(rows)
    ]
    journal[0].unionByName(journal[1]).write.parquet(f"{home}/journal")
    arrived = made.where(F.col("at_ms") % LOST_EVERY != 7).select(
        "route",
        F.col("name").alias("id"),
        F.timestamp_millis(F.col("at_ms") + 60_000).alias("at"),
        F.lit(False).alias("dead_letter"),
        F.lit("").alias("fingerprint"),
    )
    arrived.write.parquet(f"{home}/arrived")


def _journal(made: DataFrame, kind: str, after_ms: int, number: int) -> DataFrame:
    return made.select(
        F.lit(kind).alias("kind"),
        F.timestamp_millis(F.col("at_ms") + after_ms).alias("at"),
        "route",
        "shard",
        (F.col("at_ms") - FIRST_MS + 1 + number).alias("sequence"),
        F.lit(0).alias("position"),
        F.col("name").alias("id"),
        F.timestamp_millis(F.col("at_ms") + 60_000).alias("due_at"),
        F.lit(number).cast("int").alias("attempt"),
        F.lit(0).cast("long").alias("lost_entries"),
    )


def judge(spark: SparkSession, home: Path) -> str:
    """Return the verdict of a whole reconciliation."""
    evidence = Evidence(
        spark.read.parquet(f"{home}/journal"),
        None,
        spark.createDataFrame([], HELD),
        spark.read.parquet(f"{home}/arrived"),
    )
    return str(reconcile_evidence(evidence, WINDOW))
