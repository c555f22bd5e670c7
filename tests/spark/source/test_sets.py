"""The data source and the cold tier's jobs on a Sentinel set and on a Cluster, over a failover.

They come as the user whose rights `duebridge acl` prints. Also tasks that wait for replicas, as any
producer does: one that is not confirmed fails.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from duebridge.errors import Indeterminate
from duebridge_connectors.spark.source.options import StoreOptions
from duebridge_connectors.spark.source.planning import given_store
from tests.spark.by_hand import shipped, write_by_hand
from tests.spark.cold_route import ColdRoute
from tests.spark.world import LATER_MS, World
from tests.support.redis.least import granted, url_as
from tests.support.redis.redis_sets import SETS, AnySet
from tests.support.redis.replicas import Replicas, replicated
from tests.support.servers import wait_until

SAFE = ("--appendonly", "yes")
ROWS = [{"id": name, "body": "x", "due_at": LATER_MS} for name in ("a", "b")]


@pytest.fixture(params=SETS)
def at_a_set(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[World, AnySet]]:
    """A world on a set of servers."""
    with SETS[request.param](tmp_path / "set", *SAFE) as servers:
        world = World(tmp_path, servers.url, lambda: request.getfixturevalue("spark"))
        with granted(servers.nodes, world.namespace):
            world.use(url_as(servers.url))
            yield world, servers


@pytest.mark.long
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


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with replicated(tmp_path, *SAFE) as running:
        yield running


@pytest.fixture
def world(tmp_path: Path, replicas: Replicas) -> Iterator[World]:
    made = World(tmp_path, replicas.url, pytest.fail)
    file = Path(made.config)
    text = file.read_text()
    durability = "defaults: {durability: {replicated: {replicas: 2, timeout: 100ms}}}\n"
    file.write_text(text.replace("routes:\n", f"{durability}routes:\n"))
    yield made
    made.delete()


def test_write_that_replicas_did_not_confirm_fails_and_is_done_by_the_next_attempt(
    replicas: Replicas, world: World
) -> None:
    with replicas.frozen(), pytest.raises(Indeterminate) as refused:
        write_by_hand(world, ROWS, store_deadline="300ms")
    assert refused.value.ids == ("a",)
    summary = write_by_hand(world, ROWS)
    assert (summary.duplicate, summary.accepted) == (1, 1)


def test_shards_of_the_cold_tiers_jobs_wait_as_their_route_does(
    replicas: Replicas, world: World
) -> None:
    write_by_hand(world, ROWS[:1], "frozen")
    address = shipped(given_store(StoreOptions(config=world.config, store_deadline=300)))
    with address.connect() as connection:
        (shard,) = address.shards("frozen", 1)
        store = address.delay_store(connection, shard, 10**9)
        with replicas.frozen(1), pytest.raises(Indeterminate) as refused:
            store.demote("batch", 0, [("a", 1)])
    assert refused.value.ids == ("a",)
