"""The cold tier while its store is away for a moment."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from duebridge.config.models import HOUR_MS
from duebridge_connectors.spark.cold_tier import Tier
from duebridge_connectors.spark.jobs.demote import run_demote
from duebridge_connectors.spark.jobs.hydrate import run_hydrate
from tests.spark.conftest import LATER_MS, World
from tests.spark.test_demote import schedule, warm
from tests.store.proxy import proxied

IDS = [f"i{n:04d}" for n in range(40)]


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
