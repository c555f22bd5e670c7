"""A store is brought back with the commits of its cold tier, both of one moment."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from duebridge.config.models import HOUR_MS
from duebridge.store.connection import open_connection
from duebridge_connectors.spark.cold_tier import Tier
from duebridge_connectors.spark.jobs.demote import run_demote
from duebridge_connectors.spark.jobs.hydrate import run_hydrate
from tests.day_two.test_backup import AT_ONCE, back_up, restored
from tests.spark.conftest import LATER_MS, World
from tests.spark.test_demote import schedule, warm
from tests.store.servers import redis_server


def lose_a_store(spark: SparkSession, home: Path) -> World:
    """Make two ids cold, back up with two more in the store; then all change places."""
    (home / "lost").mkdir()
    with redis_server(home / "lost", "--appendonly", "yes", *AT_ONCE) as port:
        world = World(home, f"redis://127.0.0.1:{port}/0")
        to: dict[str, Any] = {"config": world.config, "route": "cold"}
        schedule(world, "a", "b")
        assert run_demote(spark, **to).removed == 2
        schedule(world, "c", "d")
        back_up(port, home / "backup.rdb")
        shutil.copytree(commits(home), home / "backup")
        assert run_demote(spark, **to).removed == 2
        with pytest.MonkeyPatch.context() as later:
            all_come_back(later)
            assert run_hydrate(spark, **to).accepted == 4
        return world


def commits(home: Path) -> Path:
    return home / "cold" / "route=cold" / "_commits"


def all_come_back(later: pytest.MonkeyPatch) -> None:
    """Let the horizon reach so far that what is due in a month is to come back."""
    later.setattr(Tier, "boundary_ms", lambda _: LATER_MS + 24 * HOUR_MS)


@pytest.mark.long
def test_restore_of_a_store_and_the_commits_of_its_moment_loses_no_cold_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = lose_a_store(spark, tmp_path)
    shutil.rmtree(commits(tmp_path))
    shutil.copytree(tmp_path / "backup", commits(tmp_path))
    with restored(tmp_path / "backup.rdb", tmp_path / "restored") as port:
        world.use(f"redis://127.0.0.1:{port}/0")
        world.connection = open_connection(f"redis://127.0.0.1:{port}/0")
        assert warm(world) == {"c", "d"}
        all_come_back(monkeypatch)
        done = run_hydrate(spark, config=world.config, route="cold")
        assert (done.accepted, done.left) == (2, 0)
        assert warm(world) == {"a", "b", "c", "d"}
