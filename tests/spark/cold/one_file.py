"""What `test_cluster` submits: one file of the cold tier, brought back by all executors.

    spark-submit one_file.py CONFIG ROWS

The rows are due in one hour of next month, so they are in one file. Prints hydrate's summary.
"""

import sys
import time
from typing import Any

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.config.models import HOUR_MS
from duebridge_connectors.spark.cold.tier import Tier, open_tier
from duebridge_connectors.spark.jobs.hydrate import run_hydrate
from duebridge_connectors.spark.jobs.schedule import run_schedule
from duebridge_connectors.spark.session import opened_session

MONTH_MS = 30 * 24 * HOUR_MS


def main() -> None:
    config, count = sys.argv[1], int(sys.argv[2])
    to: dict[str, Any] = {"config": config, "route": "plain"}
    due_ms = (int(time.time() * 1000) + MONTH_MS) // HOUR_MS * HOUR_MS
    with opened_session("one file") as spark:
        spark.range(0, count, 1, 1).select(
            F.format_string("n-%07d", "id").alias("id"),
            F.repeat(F.lit("x"), 100).alias("body"),
            F.lit(due_ms).alias("due_at"),
        ).createOrReplaceTempView("given")
        run_schedule(spark, ["given"], form="table", **to)
        (_,) = open_tier(config, "plain").log.state().known
        real = Tier.boundary_ms
        Tier.boundary_ms = lambda tier: real(tier) + 2 * MONTH_MS  # type: ignore[method-assign]
        spark.sparkContext.setJobGroup("hydrate", "")
        done = run_hydrate(spark, **to)
    sys.stdout.write(f"{msgspec.json.encode(done).decode()}\n")


if __name__ == "__main__":
    main()
