"""`reconcile`: journal rows judged a second, beside what a Kafka of as many messages has.

Half of the rows say accepted, half delivered; everything arrived, but for one id in a million that
is lost. What is read is Parquet on disk; the journal is written by Spark as the job journal has it.
"""

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge_connectors.spark.jobs.reconcile import reconcile_evidence
from duebridge_connectors.spark.transforms.verdict import Evidence, JudgedPeriod
from tests.bench.spark.jobs import Job
from tests.bench.spark.stage import Stage

FIRST_MS = 1_770_000_000_000
LOST_EVERY = 1_000_000
PERIOD = JudgedPeriod(0, FIRST_MS * 2, FIRST_MS * 2, None)
HELD = "route string, id string, state string, waits_for timestamp, scheduled_at timestamp"
JOURNAL = """
SELECT kind, timestamp_millis({at_ms} + number * 60000) AS at, 'reminders' AS route,
  CAST(id % 4 AS INT) AS shard, id + 1 + number AS sequence, 0 AS position,
  format_string('order-%012d', id) AS id, timestamp_millis({at_ms} + 60000) AS due_at,
  number AS attempt, 0L AS lost_entries
FROM range({ids}) CROSS JOIN VALUES ('accepted', 0), ('delivered', 1) AS kinds(kind, number)
"""


def reconcile(stage: Stage, rows: int) -> Job:
    """Judge a journal that is written once; an id in a million is lost, and must be named."""
    spark, home = stage.spark, stage.home
    if not (home / "journal").exists():
        journal = spark.sql(JOURNAL.format(at_ms=f"({FIRST_MS} + id)", ids=rows // 2))
        journal.write.parquet(f"{home}/journal")
        delivered = spark.read.parquet(f"{home}/journal").where("kind = 'delivered'")
        found = delivered.where(F.col("sequence") % LOST_EVERY != 7)
        texts = "route", "id", "at", "false AS dead_letter", "'' AS fingerprint"
        found.selectExpr(*texts).write.parquet(f"{home}/arrived")
    written, arrived = (spark.read.parquet(f"{home}/{name}") for name in ("journal", "arrived"))
    evidence = Evidence(written, None, spark.createDataFrame([], HELD), arrived)

    def job() -> None:
        verdict = str(reconcile_evidence(evidence, PERIOD))
        assert rows < 2 * LOST_EVERY or "lost" in verdict, verdict

    return job
