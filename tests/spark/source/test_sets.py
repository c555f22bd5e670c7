"""The data source and the cold tier's jobs on a Sentinel set and on a Cluster, over a failover.

They come as the user whose rights `duebridge acl` prints.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from tests.spark.cold_route import ColdRoute
from tests.spark.world import LATER_MS, World
from tests.support.redis.least import granted, url_as
from tests.support.redis.redis_sets import SETS, AnySet
from tests.support.servers import wait_until

pytestmark = pytest.mark.long

SAFE = ("--appendonly", "yes")


@pytest.fixture(params=SETS)
def at_a_set(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[World, AnySet]]:
    """A world on a set of servers."""
    with SETS[request.param](tmp_path / "set", *SAFE) as servers:
        world = World(tmp_path, servers.url, lambda: request.getfixturevalue("spark"))
        with granted(servers.nodes, world.namespace):
            world.use(url_as(servers.url))
            yield world, servers


def test_jobs_go_on_over_a_failover_and_lose_nothing(
    at_a_set: tuple[World, AnySet], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, servers = at_a_set
    frame = world.spark.range(0, 400, 1, 4).selectExpr(
        "concat('n-', id) AS id", "'body' AS body", f"{LATER_MS} + id AS due_at"
    )
    assert world.write(frame, "cold").accepted == 400
    cold = ColdRoute(world, monkeypatch)
    servers.kill_master()
    assert cold.demote().removed == 400
    wait_until(lambda: reads(world), "the test's own client to find the new master")
    assert (cold.warm(), len(cold.ids())) == (set(), 400)
    assert world.write(frame, "split").accepted == 400
    assert world.read(route="split").count() == 400


def reads(world: World) -> bool:
    with suppress(redis.RedisError):
        world.ids("cold")
        return True
    return False
