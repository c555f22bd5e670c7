"""What `test_cluster` submits: executors read one shard, and hydrate one file of the cold tier.

    spark-submit on_executors.py CONFIG READ_ROWS HYDRATE_ROWS

Prints as JSON what each turn gave: rows, and CPU time of the executors for a row, in us. A tenth of
the rows has two turns, since the first one starts the workers, and then all of them have one.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.config.models import HOUR_MS
from duebridge_connectors.spark.cold.tier import Tier, open_tier
from duebridge_connectors.spark.jobs.hydrate import run_hydrate
from duebridge_connectors.spark.jobs.schedule import run_schedule
from duebridge_connectors.spark.session import opened_session
from duebridge_connectors.spark.source.dataframes import read_source, write_envelopes

PARTS = 6
MONTH_MS = 30 * 24 * HOUR_MS
DUE_MS = (int(time.time() * 1000) + MONTH_MS) // HOUR_MS * HOUR_MS


def rows(spark: SparkSession, count: int, parts: int, turn: int) -> DataFrame:
    """Give envelopes that are all due at once, each turn's two hours later."""
    return spark.range(0, count, 1, parts).select(
        F.format_string(f"{turn}-%07d", "id").alias("id"),
        F.repeat(F.lit("x"), 100).alias("body"),
        F.lit(DUE_MS + 2 * turn * HOUR_MS).alias("due_at"),
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


def read_shard(spark: SparkSession, config: str, count: int, _: int) -> Callable[[], int]:
    """Write one shard, the same ids in each turn; return what reads all columns of its rows."""
    write_envelopes(rows(spark, count, PARTS, 0), config=config, route="plain")
    frame = read_source(spark, config=config, route="plain", state="pending")
    # Python gives every column all the same.
    return lambda: int(frame.agg(F.count("id")).collect()[0][0])


def hydrate_file(spark: SparkSession, config: str, count: int, turn: int) -> Callable[[], int]:
    """Write one file, since its rows are due in one hour; return what brings them back."""
    rows(spark, count, 1, turn).createOrReplaceTempView("given")
    before = set(open_tier(config, "frozen").log.state().known)
    run_schedule(spark, ["given"], form="table", config=config, route="frozen")
    (_,) = set(open_tier(config, "frozen").log.state().known) - before
    Tier.boundary_ms = lambda _: DUE_MS + (2 * turn + 1) * HOUR_MS  # type: ignore[method-assign]
    return lambda: run_hydrate(spark, config=config, route="frozen").accepted


PREPARE = {"read": read_shard, "hydrate": hydrate_file}


def turns(spark: SparkSession, config: str, what: str, count: int) -> list[dict[str, float]]:
    """Take all turns, each as a group of jobs of its own, and return what they gave."""
    context, done = spark.sparkContext, []
    for turn, some in enumerate((count // 10, count // 10, count)):
        context.setJobGroup(f"before {what} {turn}", "")
        call = PREPARE[what](spark, config, some, turn)
        context.setJobGroup(f"{what} {turn}", "")
        before = executors_cpu_us(context.applicationId)
        found = call()
        spent = executors_cpu_us(context.applicationId) - before
        done.append({"rows": found, "cpu_us": spent / found})
    return done


def main() -> None:
    config, counts = sys.argv[1], map(int, sys.argv[2:])
    with opened_session("on executors") as spark:
        done = {
            what: turns(spark, config, what, count)
            for what, count in zip(PREPARE, counts, strict=True)
        }
    sys.stdout.write(f"{msgspec.json.encode(done).decode()}\n")


if __name__ == "__main__":
    main()
