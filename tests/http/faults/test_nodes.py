"""A node of a Cluster goes away: what the others have is answered as ever, and so is `/readyz`."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from duebridge.store.keys import Shard, routes_key
from duebridge.store.routing import shard_number
from tests.support.redis.redis_node import RedisNode
from tests.support.redis.redis_sets import ClusterOfSix
from tests.support.serving import CONFIG, NDJSON, Served, serving

SHARDS = 12
MANY = "/v1/routes/many/envelopes"
AT_ONCE_S = 3.0  # on a busy machine; a request waits four seconds for a node that is away


@pytest.fixture
def six(steady_six: ClusterOfSix) -> Iterator[ClusterOfSix]:
    yield steady_six
    steady_six.mend()


def configured(**shards: int) -> dict[str, Any]:
    """A configuration with these routes, and their shards."""
    target = {"broker": "here", "topic": "t"}
    routes = {name: {"target": target, "shards": number} for name, number in shards.items()}
    return {**CONFIG, "routes": routes}


def routes_by_node(six: ClusterOfSix, namespace: str) -> dict[RedisNode, str]:
    """A route of one shard for each master."""
    names = [f"r{number}" for number in range(60)]
    found = {six.owner_of(Shard(namespace, name, 0).wake): name for name in names}
    assert len(found) == 3
    return found


def test_readyz_goes_by_the_nodes_that_have_a_route(six: ClusterOfSix, tmp_path: Path) -> None:
    routes = routes_by_node(six, "alone")
    node = six.owner_of(routes_key("alone"))  # reading stats asks it, too
    route = routes.pop(node)
    histogram = f"/v1/routes/{route}/histogram"
    with (
        serving(tmp_path / "alone", six.url, configured(**{route: 1})) as served,
        served.client() as client,
    ):
        for other in routes:
            other.kill()
        assert client.get("/readyz").status_code == 200
        assert client.get(histogram).status_code == 200
        node.kill()
        assert client.get("/readyz").status_code == 503


def test_readyz_beside_a_frozen_node_is_ready_at_once(six: ClusterOfSix, tmp_path: Path) -> None:
    routes = routes_by_node(six, "all")
    with (
        serving(tmp_path / "all", six.url, configured(**dict.fromkeys(routes.values(), 1))) as it,
        it.client() as client,
    ):
        for node in routes:
            with node.frozen():
                answer = client.get("/readyz")
            assert (answer.status_code, answer.elapsed.total_seconds() < 1.0) == (200, True)


@pytest.fixture
def halved(six: ClusterOfSix, tmp_path: Path) -> Iterator[tuple[Served, list[str], list[str]]]:
    """A server whose route has a dead node, and ids of the live nodes and of that one."""
    namespace = tmp_path.name
    with serving(tmp_path / namespace, six.url, configured(many=SHARDS)) as served:
        shards = [Shard(namespace, "many", number) for number in range(SHARDS)]
        owners = [six.owner_of(shard.wake) for shard in shards]
        ids = [f"id{number}" for number in range(400)]
        dead = next(each for each in owners if each is not six.owner_of(routes_key(namespace)))
        gone = [each for each in ids if owners[shard_number(each, SHARDS)] is dead]
        live = [each for each in ids if each not in gone]
        with served.client() as client:
            assert posted(client, live[0]).status_code == 201  # which opens the route
        dead.kill()
        yield served, live, gone


def posted(client: httpx.Client, id_: str) -> httpx.Response:
    return client.post(MANY, json={"id": id_, "body": "x", "delay": "1h"})


@contextmanager
def beside(
    served: Served, ids: list[str], call: Callable[[httpx.Client, str], httpx.Response]
) -> Iterator[None]:
    """Make the call with each id, all at once; each is answered that the store is away."""

    def status(id_: str) -> int:
        with served.client() as client:
            return call(client, id_).status_code

    with ThreadPoolExecutor(len(ids)) as pool:
        asked = [pool.submit(status, each) for each in ids]
        yield
    assert {each.result() for each in asked} == {503}


def slowest_s(answers: list[httpx.Response]) -> float:
    return max(each.elapsed.total_seconds() for each in answers)


def test_post_beside_those_of_a_dead_node_is_stored_at_once(
    halved: tuple[Served, list[str], list[str]],
) -> None:
    served, live, gone = halved
    with served.client() as client, beside(served, gone[:8], posted):
        answers = [posted(client, each) for each in live[1:41]]
        assert {each.status_code for each in answers} == {201}
        assert slowest_s(answers) < AT_ONCE_S


def test_get_beside_many_of_a_dead_node_is_answered_at_once(
    halved: tuple[Served, list[str], list[str]],
) -> None:
    served, live, gone = halved

    def get(client: httpx.Client, id_: str) -> httpx.Response:
        return client.get(f"{MANY}/{id_}")

    with served.client() as client, beside(served, gone[:40], get):
        for path in (f"{MANY}/{live[0]}", "/readyz"):
            answers = [client.get(path) for _ in range(30)]
            assert {each.status_code for each in answers} == {200}
            assert slowest_s(answers) < AT_ONCE_S


def test_lines_beside_those_of_a_dead_node_are_told_as_stored(
    halved: tuple[Served, list[str], list[str]],
) -> None:
    served, live, gone = halved
    ids = [gone[0], live[1], gone[1], live[2], live[2]]
    ids += [*live[3:200], gone[2]]  # more than a batch
    lines = [json.dumps({"id": each, "body": "x", "delay": "1h"}) + "\n" for each in ids]
    with served.client() as client:
        answer = client.post(MANY, content="".join(lines).encode(), headers=NDJSON)
        told = [json.loads(each) for each in answer.text.splitlines()]
        statuses = ["unavailable", "accepted", "unavailable", "accepted", "duplicate"]
        statuses += ["accepted"] * 197 + ["unavailable"]
        assert [(each["id"], each["status"]) for each in told] == list(
            zip(ids, statuses, strict=True)
        )
