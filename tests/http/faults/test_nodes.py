"""A node of a Cluster goes away: what the others have is answered as ever, and so is `/readyz`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duebridge.store.keys import Shard, routes_key
from tests.support.redis.redis_node import RedisNode
from tests.support.redis.redis_sets import ClusterOfSix, redis_cluster_of_six
from tests.support.serving import CONFIG, serving

NO_FAILOVER_MS = 60_000  # a node that is away stays the one that is asked


@pytest.fixture(scope="module")
def running_six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfSix]:
    home = tmp_path_factory.mktemp("six")
    with redis_cluster_of_six(home, "--appendonly", "yes", node_timeout_ms=NO_FAILOVER_MS) as six:
        yield six


@pytest.fixture
def six(running_six: ClusterOfSix) -> Iterator[ClusterOfSix]:
    yield running_six
    for node in running_six.nodes:
        node.resume()
        if node.process is not None and node.process.poll() is not None:
            node.start()
    running_six.await_whole()


def configured(**shards: int) -> dict[str, Any]:
    """A configuration with these routes, and their shards."""
    target = {"broker": "here", "topic": "t"}
    routes = {name: {"target": target, "shards": number} for name, number in shards.items()}
    return {**CONFIG, "routes": routes}


def routes_by_port(six: ClusterOfSix, namespace: str) -> dict[int, str]:
    """A route of one shard for each master, by its port."""
    names = [f"r{number}" for number in range(60)]
    found = {six.owner_of(Shard(namespace, name, 0).wake).port: name for name in names}
    assert len(found) == 3
    return found


def node_at(six: ClusterOfSix, port: int) -> RedisNode:
    return next(each for each in six.nodes if each.port == port)


def test_readyz_goes_by_the_nodes_that_have_a_route(six: ClusterOfSix, tmp_path: Path) -> None:
    routes = routes_by_port(six, "alone")
    port = six.owner_of(routes_key("alone")).port  # reading stats asks it, too
    route = routes.pop(port)
    histogram = f"/v1/routes/{route}/histogram"
    with (
        serving(tmp_path / "alone", six.url, configured(**{route: 1})) as served,
        served.client() as client,
    ):
        for other in routes:
            node_at(six, other).kill()
        assert client.get("/readyz").status_code == 200
        assert client.get(histogram).status_code == 200
        node_at(six, port).kill()
        assert client.get("/readyz").status_code == 503


def test_readyz_beside_a_frozen_node_is_ready_at_once(six: ClusterOfSix, tmp_path: Path) -> None:
    routes = routes_by_port(six, "all")
    with (
        serving(tmp_path / "all", six.url, configured(**dict.fromkeys(routes.values(), 1))) as it,
        it.client() as client,
    ):
        for port in routes:
            node_at(six, port).freeze()
            answer = client.get("/readyz")
            assert (answer.status_code, answer.elapsed.total_seconds() < 1.0) == (200, True)
            node_at(six, port).resume()
