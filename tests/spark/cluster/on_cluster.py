"""What `test_cluster` submits: jobs on a cluster whose tasks fail, dawdle and lose their executor.

    spark-submit on_cluster.py CONFIG HOME ROWS

Half of the rows are due in a month: they leave for the cold tier, and come back. What was broken on
purpose leaves a file in HOME. The summaries are printed as JSON.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.config.models import HOUR_MS
from duebridge_connectors.spark.cold.tier import Tier
from duebridge_connectors.spark.jobs.demote import run_demote
from duebridge_connectors.spark.jobs.hydrate import run_hydrate
from duebridge_connectors.spark.jobs.journal import run_journal
from duebridge_connectors.spark.jobs.schedule import run_schedule
from duebridge_connectors.spark.session import opened_session

PARTS = 6
KILLS, FAILS, DAWDLES = 0, (1, 4), 5  # which part does what, once
DAWDLES_S = 300  # until the other one is through, which ends this one
MONTH_MS = 30 * 24 * HOUR_MS


def unlucky(home: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the same rows; some tasks come to grief once, after the first of them."""
    context = TaskContext.get()
    assert context is not None
    part = context.partitionId()
    for number, batch in enumerate(batches):
        if number == 1 and part == KILLS and is_first(home, "killed"):
            os.kill(executor_pid(), signal.SIGKILL)
        if number == 1 and part in FAILS and is_first(home, f"failed-{part}"):
            raise RuntimeError("planned by the test")
        if number == 1 and part == DAWDLES:
            dawdle_once(home)
        yield batch


def dawdle_once(home: Path) -> None:
    """Be so slow that Spark begins the task again elsewhere; whoever comes second says so."""
    if is_first(home, "dawdled"):
        time.sleep(DAWDLES_S)
        is_first(home, "waited in vain")
    else:
        is_first(home, "speculated")


def is_first(home: Path, name: str) -> bool:
    """Whether nobody did this before."""
    try:
        (home / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def executor_pid() -> int:
    """A worker's parent is the daemon that forked it, whose parent is the executor's JVM."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def rows(spark: SparkSession, count: int) -> DataFrame:
    """Give envelopes by turns due in a day and in a month; every hundredth is too large."""
    number = F.col("id")
    size = F.when(number % 100 == 0, 300_000).otherwise(10)
    return spark.range(0, count, 1, PARTS).select(
        F.format_string("n-%06d", number).alias("id"),
        F.repeat(F.lit("x"), size).alias("body"),
        (F.lit(int(time.time() * 1000)) + F.when(number % 2 == 0, 0).otherwise(MONTH_MS)
         + 24 * HOUR_MS).alias("due_at"),
    )  # fmt: skip


def main() -> None:
    config, home, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    to: dict[str, Any] = {"config": config, "route": "cold"}
    with opened_session("on a cluster") as spark:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 200)
        given = rows(spark, count)
        given.mapInArrow(partial(unlucky, home), given.schema).createOrReplaceTempView("given")
        options = {**to, "rejects": str(home / "rejects"), "cold": False}
        done: dict[str, Any] = {"schedule": run_schedule(spark, ["given"], form="table", **options)}
        done["demote"] = run_demote(spark, **to)
        real = Tier.boundary_ms
        Tier.boundary_ms = lambda tier: real(tier) + 2 * MONTH_MS  # type: ignore[method-assign]
        done["hydrate"] = run_hydrate(spark, **to)
        done["journal"] = run_journal(spark, str(home / "journal"), config=config)
        done["read"] = spark.read.format("duebridge").options(config=config).load().count()
    sys.stdout.write(f"{msgspec.json.encode(done).decode()}\n")


if __name__ == "__main__":
    main()
