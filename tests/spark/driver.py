"""A driver that runs every job at once, some slowly, until it is killed: `test_killed_driver`.

    python -m tests.spark.driver CONFIG HOME TOPIC LETTERS JARS

Journal begins first: Spark gives the process of its source 10 s to connect, which it misses where
all begin at once on busy cores. Then demote, which never gets behind the removal, and the jobs that
a rate makes slow; reconcile and report, which need whole cores, begin when there is a file
HOME/observed.
"""

import os
import sys
import traceback
from collections.abc import Callable
from faulthandler import dump_traceback_later
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from duebridge.config.models import HOUR_MS
from duebridge_connectors.spark.cold.commit_log import REMOVED, ColdLog, Commit
from duebridge_connectors.spark.cold.tier import Tier
from duebridge_connectors.spark.jobs.demote import run_demote
from duebridge_connectors.spark.jobs.hydrate import HydrateSummary, run_hydrate
from duebridge_connectors.spark.jobs.intake import Intake, IntakeSummary, run_intake
from duebridge_connectors.spark.jobs.journal import run_journal
from duebridge_connectors.spark.jobs.reconcile import run_reconcile
from duebridge_connectors.spark.jobs.replay import Replay, ReplaySummary, run_replay
from duebridge_connectors.spark.jobs.report import run_report
from duebridge_connectors.spark.jobs.schedule import run_schedule
from duebridge_connectors.spark.session import opened_session
from duebridge_connectors.spark.source.loader import Summary
from tests.spark.world import LATER_MS
from tests.support.servers import wait_until
from tests.support.spark.launch import SETTINGS as FEW_ROWS

JOURNAL = "journal/day=*/*.parquet"
RATE = 2  # rows a second of each slow job
TOLD_WITHIN_S = 300.0  # at each step
STUCK_S = 240.0  # then the log gets where each thread waits
# A task that waits for its rate keeps its slot: few tasks a job, and slots for all of them.
SETTINGS = {
    **FEW_ROWS,
    "spark.master": "local[16]",
    "spark.default.parallelism": "2",
}


_commit = ColdLog.commit


class Jobs(NamedTuple):
    """Every job; each may be run again."""

    schedule: Callable[..., Summary]
    intake: Callable[..., IntakeSummary]
    replay: Callable[..., ReplaySummary]
    hydrate: Callable[..., HydrateSummary]
    demote: Callable[..., object]
    journal: Callable[..., object]
    reconcile: Callable[..., object]
    report: Callable[..., object]


def prepared(spark: SparkSession, config: str, home: Path, topic: str, letters: str) -> Jobs:
    """Return the jobs on two topics, and on what the test has left below `home`."""
    records = Intake(topic=topic, checkpoint=f"{home}/intake", columns={"delay": "'0ms'"})
    dead = Replay(topic=letters, broker="kafka", delay="1h")
    return Jobs(
        partial(run_schedule, spark, [f"{home}/rows.parquet"], config=config, route="plain"),
        partial(run_intake, spark, records, config=config, route="split"),
        partial(run_replay, spark, dead, is_dry_run=False, config=config),
        partial(run_hydrate, spark, config=config, route="cold"),
        partial(run_demote, spark, config=config, route="frozen"),
        partial(run_journal, spark, f"{home}/journal", config=config),
        partial(run_reconcile, spark, config, routes=["plain"], out=f"{home}/verdict"),
        partial(run_report, spark, f"{home}/report", config=config),
    )


def has_files(home: Path, pattern: str) -> bool:
    return any(home.glob(pattern))


def all_due_in_a_month(_: Tier) -> int:
    """Stand in for `Tier.boundary_ms`, so that what is due in a month is to come back."""
    return LATER_MS + 9 * HOUR_MS


def commit_but_no_end(log: ColdLog, entry: Commit, *check: Any) -> bool:
    """Stand in for `ColdLog.commit`, so that a kill finds demote in its middle, however late."""
    if entry.kind == REMOVED:
        Event().wait()
    return _commit(log, entry, *check)


def again_and_again(job: Callable[[], object]) -> None:
    while True:
        job()


def begin(job: Callable[..., object], *given: object, **options: Any) -> None:
    """Start a thread; the driver ends at once if the job fails, and its log says why."""

    def run() -> None:
        try:
            job(*given, **options)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    Thread(target=run, daemon=True).start()


def main() -> None:
    config, home, topic, letters, jars = sys.argv[1:]
    dump_traceback_later(STUCK_S)
    with opened_session("killed", more={**SETTINGS, "spark.jars": jars}) as spark:
        jobs = prepared(spark, config, Path(home), topic, letters)
        real = Tier.boundary_ms
        Tier.boundary_ms = lambda tier: (  # type: ignore[method-assign]
            all_due_in_a_month(tier) if tier.route.name == "cold" else real(tier)
        )
        ColdLog.commit = commit_but_no_end  # type: ignore[method-assign]
        begin(jobs.journal, every="500ms")
        wait_until(partial(has_files, Path(home), JOURNAL), "journal", TOLD_WITHIN_S)
        begin(jobs.demote)
        begin(jobs.schedule, rows_per_second=RATE)
        begin(jobs.intake, rows_per_second=RATE)
        begin(jobs.replay, rows_per_second=RATE)
        begin(jobs.hydrate, rows_per_second=RATE)
        wait_until((Path(home) / "observed").exists, "observed", TOLD_WITHIN_S)
        begin(again_and_again, jobs.reconcile)
        begin(again_and_again, jobs.report)
        Event().wait()  # the end is a kill


if __name__ == "__main__":
    main()
