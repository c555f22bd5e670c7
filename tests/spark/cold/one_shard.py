"""What `test_cluster` submits: one shard, written and read by all executors.

    spark-submit one_shard.py CONFIG ROWS

Prints as JSON what each read gave: rows, tasks, and CPU time of the executors for a row, in us. A
tenth of the rows is read twice, since the first read starts the workers, and then all of them.
"""

import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge_connectors.spark.session import opened_session
from duebridge_connectors.spark.source.dataframes import read_source, write_envelopes

PARTS = 6
DUE_MS = 1000 * int(time.time() + 30 * 86_400)


def rows(spark: SparkSession, count: int) -> DataFrame:
    """Give envelopes that are all due at once."""
    return spark.range(0, count, 1, PARTS).select(
        F.format_string("n-%07d", "id").alias("id"),
        F.repeat(F.lit("x"), 100).alias("body"),
        F.lit(DUE_MS).alias("due_at"),
    )


def executors_cpu_us(app_id: str) -> float:
    """The CPU time of the executors, and of their Python workers, until now."""
    parents, ticks, roots = {}, {}, set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            words = path.with_name("cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
        if app_id.encode() in words and b"CoarseGrainedExecutorBackend" in words:
            roots.add(pid)
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return 1e4 * sum(ticks[pid] for pid in found)


def read(spark: SparkSession, config: str) -> dict[str, Any]:
    """Read all columns of what is pending."""
    frame = read_source(spark, config=config, route="plain", state="pending")
    app_id = spark.sparkContext.applicationId
    before = executors_cpu_us(app_id)
    count = frame.agg(F.count("id")).collect()[0][0]  # Python gives every column all the same
    spent = executors_cpu_us(app_id) - before
    return {"rows": count, "tasks": frame.rdd.getNumPartitions(), "cpu_us": spent / count}


def main() -> None:
    config, count = sys.argv[1], int(sys.argv[2])
    done = []
    with opened_session("one shard") as spark:
        for some in (count // 10, count // 10, count):  # the first read starts the workers
            write_envelopes(rows(spark, some), config=config, route="plain")
            spark.sparkContext.setJobGroup(f"read {some}", "")
            done.append(read(spark, config))
    sys.stdout.write(f"{msgspec.json.encode(done).decode()}\n")


if __name__ == "__main__":
    main()
