"""The cold tier with its driver killed for real, and its store away for a moment."""

import os
import signal
import subprocess
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bridge.config import HOUR_MS
from bridge.envelope import Envelope
from connectors.spark.cold_tier import Tier
from connectors.spark.jobs.demote import run_demote
from connectors.spark.jobs.hydrate import run_hydrate
from tests.acceptance.command import ENVIRONMENT, PROGRAM
from tests.spark.conftest import LATER_MS, World
from tests.spark.test_demote import cold, schedule, warm
from tests.store.proxy import proxied
from tests.store.servers import wait_until

IDS = [f"i{n:04d}" for n in range(40)]
ROWS = 3000  # so many that a kill comes in the middle


def test_demote_and_hydrate_while_replies_are_lost_lose_nothing(
    spark: SparkSession, world: World, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule(world, *IDS)
    with proxied(int(service("redis", "port"))) as proxy:
        world.use(f"redis://127.0.0.1:{proxy.port}/0")
        proxy.lose_reply_to(IDS[0].encode())  # of demote, the first call that names it
        assert run_demote(spark, config=world.config, route="cold").removed == len(IDS)
        assert (proxy.lost, warm(world)) == (1, set())
        monkeypatch.setattr(Tier, "boundary_ms", lambda _: LATER_MS + 99 * HOUR_MS)
        proxy.lose_reply_to(IDS[0].encode())  # of schedule
        done = run_hydrate(spark, config=world.config, route="cold")
        assert (proxy.lost, done.accepted + done.duplicate) == (2, len(IDS))
    assert warm(world) == {*IDS}


def killed_once(world: World, job: str, sign: Any) -> None:
    """Start a job as a person does, and kill its driver when there is a sign of its work."""
    program = [PROGRAM, "--config", world.config, "spark", job, "cold"]
    with subprocess.Popen(program, env=ENVIRONMENT, start_new_session=True) as driver:
        wait_until(lambda: sign() or driver.poll() is not None, f"work of {job}", within_s=100.0)
        os.killpg(driver.pid, signal.SIGKILL)


def test_demote_whose_driver_is_killed_and_run_again_loses_nothing(
    spark: SparkSession, world: World
) -> None:
    ids = [f"k{n:04d}" for n in range(ROWS)]
    at = [LATER_MS + n for n in range(ROWS)]
    envelopes = [Envelope.new(b"x", id=name, at=due) for name, due in zip(ids, at, strict=True)]
    world.producer().schedule_many("cold", envelopes)
    commits = world.home / "cold" / "route=cold" / "_commits"
    killed_once(world, "demote", lambda: any(commits.glob("*-demoted.json")))
    run_demote(spark, config=world.config, route="cold")
    assert warm(world) == set()
    assert cold(spark, world) == ids
