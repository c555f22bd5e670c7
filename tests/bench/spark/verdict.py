"""What a verdict costs: a journal of any size, its messages, one planted violation of each kind.

An envelope has two rows, accepted and delivered, and one message. Every planted id must be named,
and nothing else.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from duebridge_connectors.spark.jobs.reconcile import reconcile_evidence
from duebridge_connectors.spark.transforms.verdict import KINDS, Evidence, JudgedPeriod
from tests.bench.spark.jobs import Job
from tests.bench.spark.stage import Stage

FIRST_MS = 1_770_000_000_000
DUE_MS = FIRST_MS + 60_000  # of what is planted
LATE_MS = 600_000
PERIOD = JudgedPeriod(0, FIRST_MS * 2, FIRST_MS * 2, LATE_MS)
JOURNAL = """
SELECT kind, timestamp_millis({first} + id + number * 60010) AS at, 'reminders' AS route,
  CAST(id % 4 AS INT) AS shard, 2 * (id DIV 4) + 1 + number AS sequence, 0 AS position,
  format_string('order-%012d', id) AS id, timestamp_millis({first} + id + 60000) AS due_at,
  number AS attempt, 0L AS lost_entries, CAST(null AS STRING) AS reason
FROM range({ids}) CROSS JOIN VALUES ('accepted', 0), ('delivered', 1) AS kinds(kind, number)
"""
ARRIVED = """
SELECT 'reminders' AS route, format_string('order-%012d', id) AS id,
  timestamp_millis({first} + id + 60005) AS at, false AS dead_letter,
  timestamp_millis({first} + id) AS scheduled_at, '' AS fingerprint,
  {first} + id + 60000 AS header_due_ms, 'right' AS place
FROM range({ids})
"""
# id, kind, the instant after FIRST_MS, the due instant, attempt
ENTRIES = """
  ('lost', 'accepted', 0, 60000, null), ('lost', 'delivered', 60010, 60000, 1),
  ('early', 'accepted', 0, 60000, null), ('early', 'delivered', 60010, 60000, 1),
  ('after_cancel', 'accepted', 0, 60000, null), ('after_cancel', 'delivered', 60010, 60000, 1),
  ('after_cancel', 'accepted', 70000, 90000, null), ('after_cancel', 'cancelled', 80000, 90000, 0),
  ('corrupt', 'accepted', 0, 60000, null), ('stuck', 'accepted', 0, 60000, null),
  ('misplaced', 'accepted', 0, 60000, null), ('misdated', 'accepted', 0, 60000, null),
  ('misdated', 'rescheduled', 10, 60000, null), ('misdated', 'rescheduled', 20, 50000, null),
  ('duplicates', 'accepted', 0, 60000, null), ('in_two_places', 'accepted', 0, 60000, null),
  ('late', 'accepted', 0, 60000, null)
"""
# id, the instant after FIRST_MS, dead letter, the life's begin, fingerprint, header, place
MESSAGES = """
  ('early', 30000, false, 0, '', 60000, 'right'),
  ('after_cancel', 60005, false, 0, '', 60000, 'right'),
  ('after_cancel', 90005, false, 70000, '', 90000, 'right'),
  ('unexpected', 60005, false, 0, '', 60000, 'right'),
  ('corrupt', 60005, false, 0, 'other', 60000, 'right'),
  ('misplaced', 60005, false, 0, '', 60000, 'stray'),
  ('misdated', 60005, false, 0, '', 55000, 'right'),
  ('duplicates', 60005, false, 0, '', 60000, 'right'),
  ('duplicates', 60006, false, 0, '', 60000, 'right'),
  ('in_two_places', 60005, false, 0, '', 60000, 'right'),
  ('in_two_places', 60006, true, 0, '', 60000, 'right'),
  ('late', 660001, false, 0, '', 60000, 'right')
"""


def reconcile(stage: Stage, rows: int) -> Job:
    """Judge a journal that is written once; each planted id must be named, and nothing else."""
    home = Path(stage.home)
    if not (home / "journal").exists():
        _write(stage.spark, home, rows // 2)
    evidence = _evidence(stage.spark, home)

    def job() -> None:
        found = reconcile_evidence(evidence, PERIOD)
        wanted = {kind: [f"reminders/{kind}"] for kind in KINDS}
        assert (found.examples, found.verdict) == (wanted, "broken"), found
        (route,) = found.routes
        assert {getattr(route, kind) for kind in KINDS} == {1}, route

    return job


def _write(spark: SparkSession, home: Path, ids: int) -> None:
    for name, text in (("journal", JOURNAL), ("arrived", ARRIVED)):
        frame = spark.sql(text.format(first=FIRST_MS, ids=ids))
        planted = _entries(spark, ids) if name == "journal" else _messages(spark)
        frame.unionByName(planted).write.parquet(f"{home}/{name}")


def _entries(spark: SparkSession, ids: int) -> DataFrame:
    return spark.sql(
        f"""SELECT kind, timestamp_millis({FIRST_MS} + at) AS at, 'reminders' AS route, 0 AS shard,
          {ids} + row_number() OVER (ORDER BY at, kind) AS sequence, 0 AS position, id,
          timestamp_millis({FIRST_MS} + due) AS due_at, attempt, 0L AS lost_entries,
          CAST(null AS STRING) AS reason
        FROM VALUES {ENTRIES} AS entries(id, kind, at, due, attempt)"""  # noqa: S608 - our own
    )


def _messages(spark: SparkSession) -> DataFrame:
    return spark.sql(
        f"""SELECT 'reminders' AS route, id, timestamp_millis({FIRST_MS} + at) AS at, dead_letter,
          timestamp_millis({FIRST_MS} + begun) AS scheduled_at, fingerprint,
          {FIRST_MS} + header AS header_due_ms, place
        FROM VALUES {MESSAGES}
          AS messages(id, at, dead_letter, begun, fingerprint, header, place)"""  # noqa: S608
    )


def _evidence(spark: SparkSession, home: Path) -> Evidence:
    journal, arrived = (spark.read.parquet(f"{home}/{name}") for name in ("journal", "arrived"))
    held = spark.sql(
        f"""SELECT 'reminders' AS route, 'stuck' AS id, 'ready' AS state,
          timestamp_millis({DUE_MS}) AS waits_for, timestamp_millis({FIRST_MS}) AS scheduled_at"""
    )
    receipts = spark.sql(
        f"""SELECT 'reminders' AS route, 'corrupt' AS id, timestamp_millis({DUE_MS}) AS due_at,
          'one' AS fingerprint"""
    )
    return Evidence(journal, receipts, held, arrived)
