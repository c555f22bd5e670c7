"""A driver killed in the middle of every job, and each job run again: nothing lost or twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from duebridge.envelope import Envelope
from duebridge_connectors.spark.cold.tier import Tier
from duebridge_connectors.spark.jobs.demote import run_demote
from duebridge_connectors.spark.jobs.journal import read_journal
from tests.spark.conftest import LATER_MS, World
from tests.spark.driver import Jobs, all_due_in_a_month
from tests.spark.test_demote import cold
from tests.spark.test_replay import dead
from tests.spark.topics import Record, opened_topics
from tests.support.command import ENVIRONMENT
from tests.support.servers import wait_until

ROWS = 2000  # of each job: at the driver's rate 200 s, longer than the test waits
BEGUN = 50  # so many are through, at least, when it is killed
FROZEN = "cold/route=frozen/_commits"
SLOW = ("plain", "split", "open", "cold")  # routes of schedule, intake, replay and hydrate
IDS = [f"i{number:04d}" for number in range(ROWS)]


def stored(world: World, route: str) -> set[str]:
    shards = {"split": 4, "cold": 2}.get(route, 1)
    return set().union(*(world.ids(route, number=number) for number in range(shards)))


def fill(world: World, route: str) -> None:
    envelopes = [Envelope.new(b"x", id=name, at=LATER_MS + n) for n, name in enumerate(IDS)]
    world.producer().schedule_many(route, envelopes)


def files(home: Path, pattern: str) -> bool:
    return any(home.glob(pattern))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_job_killed_in_the_middle_and_run_again_loses_nothing_and_repeats_nothing(
    spark: SparkSession,
    world: World,
    kafka_bootstrap: str,
    kafka_jars: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.use(world.url, kafka_bootstrap)
    home = world.home
    rows = {"id": IDS, "body": IDS, "due_at": [LATER_MS] * ROWS}  # each process has its LATER_MS
    pq.write_table(pa.table(rows), home / "rows.parquet")
    fill(world, "cold")
    assert run_demote(spark, config=world.config, route="cold").removed == ROWS
    fill(world, "frozen")
    with opened_topics(kafka_bootstrap) as topics:
        topic, letters = topics.make(), topics.make()
        topics.fill(topic, (Record(name.encode()) for name in IDS))
        topics.fill(letters, dead(topics, *IDS, route="open"))
        program = [sys.executable, "-m", "tests.spark.driver"]
        words = [world.config, str(home), topic, letters, kafka_jars]
        with (home / "driver.log").open("wb") as log:
            driver = subprocess.Popen(
                [*program, *words], stdout=log, stderr=log, env=ENVIRONMENT, start_new_session=True
            )
        try:
            wait_until(lambda: is_reported(home, driver), f"see {log.name}", within_s=200)
            (home / "slow").touch()
            begun: dict[str, int] = {}
            wait_until(lambda: is_begun(world, begun), begun, within_s=120)
            (home / "demote").touch()
            wait_until(lambda: files(home, f"{FROZEN}/*-demoted.json"), "demote", within_s=60)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        before = {route: len(stored(world, route)) for route in SLOW}
        assert all(BEGUN <= count < ROWS for count in before.values()), before
        assert not files(home, f"{FROZEN}/*-removed.json"), "demote was over"
        delivered = world.deliver("split", 100)  # what is gone already is not scheduled again
        assert delivered
        run_again(Jobs(spark, world.config, home), topic, letters, monkeypatch)
    left = stored(world, "split") | world.ids("split", "ready")
    assert (len(left), left & delivered) == (ROWS - len(delivered), set())
    assert all(len(stored(world, route)) == ROWS for route in ("plain", "open", "cold"))
    assert (stored(world, "frozen"), cold(spark, world, "frozen")) == (set(), IDS)
    accepted = read_journal(spark, str(home / "journal")).where("kind = 'accepted'")
    assert dict(accepted.groupBy("route").count().collect()) == {
        **dict.fromkeys((*SLOW, "frozen"), ROWS),
        "cold": 2 * ROWS,  # before it was cold, and when it came back
    }


def run_again(jobs: Jobs, topic: str, letters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what anybody does whose driver was killed; each job finds what the killed one stored."""
    for job in (
        jobs.schedule,
        lambda: jobs.intake(topic).rows,
        lambda: jobs.replay(letters).rows[0],
    ):
        done = job()
        assert done.accepted + done.duplicate == ROWS
        assert done.duplicate > 0
    with monkeypatch.context() as later:
        later.setattr(Tier, "boundary_ms", all_due_in_a_month)
        back = jobs.hydrate()
    assert (back.accepted + back.duplicate, back.left) == (ROWS, 0)
    jobs.demote()
    jobs.journal()
    jobs.reconcile()
    jobs.report()


def is_reported(home: Path, driver: "subprocess.Popen[bytes]") -> bool:
    assert driver.poll() is None
    return files(home, "journal/_manifests/*.json") and files(home, "report/report.html")


def is_begun(world: World, begun: dict[str, int]) -> bool:
    begun |= {route: len(stored(world, route)) for route in SLOW}
    return all(count >= BEGUN for count in begun.values())
