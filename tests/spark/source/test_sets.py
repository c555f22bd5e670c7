"""The data source and the cold tier's jobs on a Sentinel set and on a Cluster, over a failover.

They come as the user whose rights `duebridge acl` prints.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import redis

from tests.spark.cold_route import ColdRoute
from tests.spark.world import LATER_MS, World
from tests.support.redis.least import grant_in, url_as
from tests.support.redis.redis_sets import redis_cluster_of_six, sentinel_set
from tests.support.servers import wait_until

pytestmark = pytest.mark.long

SAFE = ("--appendonly", "yes")
FailOver = Callable[[], object]


@pytest.fixture(params=["sentinel", "cluster"])
def at_a_set(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[World, FailOver]]:
    """A world on a set of servers, and what kills a master and returns once it is replaced."""
    with ExitStack() as stack:
        if request.param == "sentinel":
            servers = stack.enter_context(sentinel_set(tmp_path / "set", *SAFE))
            url, nodes = servers.url, servers.servers

            def fail_over() -> None:
                (old := servers.master()).kill()
                servers.await_master_after(old)
        else:
            cluster = stack.enter_context(redis_cluster_of_six(tmp_path / "set", *SAFE))
            url, nodes = cluster.url, cluster.nodes

            def fail_over() -> None:
                cluster.masters()[0].kill()
                wait_until(lambda: len(cluster.masters()) == 3, "another master")

        world = World(tmp_path, url, lambda: request.getfixturevalue("spark"))
        for each in nodes:
            grant_in(each, world.namespace)
        world.use(url_as(url))
        yield world, fail_over
        refused = [each.ask("ACL", "LOG") for each in nodes if each.role()]
        assert refused == [[]] * len(refused), "rights that duebridge acl lacks"


def test_jobs_go_on_over_a_failover_and_lose_nothing(
    at_a_set: tuple[World, FailOver], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, fail_over = at_a_set
    frame = world.spark.range(0, 400, 1, 4).selectExpr(
        "concat('n-', id) AS id", "'body' AS body", f"{LATER_MS} + id AS due_at"
    )
    assert world.write(frame, "cold").accepted == 400
    cold = ColdRoute(world, monkeypatch)
    fail_over()
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
