"""A worker on a Cluster: a node that is slow, frozen or loses a slot delays no shard of another."""

from collections import Counter
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from duebridge.admin.checks.doctor import check_store
from duebridge.admin.checks.store_checks import check_fit, check_registered
from duebridge.ports.checks import Severity
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import routes_key
from duebridge.store.server.connection import open_connection
from duebridge.worker.process import Runner
from tests.acceptance.worker.spread import (
    Spread,
    longest_gap_s,
    schedule,
    started,
    threads_of,
    trickle,
)
from tests.acceptance.works import WITHIN_S
from tests.support.redis.redis_node import RedisNode
from tests.support.redis.redis_sets import ClusterOfSix
from tests.support.running_clock import ends_within
from tests.support.servers import wait_until

STOPS_WITHIN_S = 2.0 + 1.0 + 2.0  # drain + publish_deadline + 2 s


@pytest.fixture
def six(steady_six: ClusterOfSix) -> ClusterOfSix:
    steady_six.await_whole()
    return steady_six


def shards_by_node(works: Spread, six: ClusterOfSix) -> dict[RedisNode, list[DelayStore]]:
    """Return the shards of each master."""
    found: dict[RedisNode, list[DelayStore]] = {}
    for store in works.stores:
        found.setdefault(six.owner_of(store.shard.wake), []).append(store)
    assert len(found) == 3
    return found


def test_frozen_node_delays_no_shard_of_another(six: ClusterOfSix) -> None:
    works = Spread(six.url)
    (node, hit), (_, well), _ = shards_by_node(works, six).items()
    with started(works), trickle(works, well, "well"), capture_logs() as logs:
        wait_until(lambda: len(works.published("well")) > 20, "deliveries")
        for number, store in enumerate(hit):
            schedule(store, *(f"hit{number}-{n}" for n in range(300)))
        wait_until(lambda: works.published("hit"), "the backlog to flow")
        began = works.clock.seconds()
        with node.frozen():
            wait_until(lambda: works.clock.seconds() > began + 4.0, "some seconds")
        ended = began + 4.0
        assert longest_gap_s(works.published("well"), began, ended) < 1.0
        wait_until(lambda: len(works.published("hit")) >= 300 * len(hit), "the backlog", WITHIN_S)
    nodes = {each["node"] for each in logs if each["event"] == "store_unavailable"}
    assert {each.rpartition(":")[2] for each in nodes} == {str(node.port)}


def test_worker_that_starts_beside_a_frozen_node_delivers_what_the_others_have(
    six: ClusterOfSix,
) -> None:
    works = Spread(six.url)
    node, well = beside_the_registry(works, six)
    with node.frozen():
        with capture_logs() as logs:
            works.runner = Runner(works.config, open_connection(six.url), works.publishers)
        with started(works):
            schedule(well[0], "a")
            wait_until(lambda: works.published("a"), "a delivery", WITHIN_S)
    away = [each["node"] for each in logs if each["event"] == "store_node_away"]
    assert [name.rpartition(":")[2] for name in away] == [str(node.port)]


def test_check_names_the_frozen_node_and_goes_on_at_the_others(six: ClusterOfSix) -> None:
    works = Spread(six.url)
    node, _ = beside_the_registry(works, six)
    with node.frozen():
        found = list(check_store(works.config, works.connection, (check_fit, check_registered)))
    works.connection.close()
    (fault,) = (each for each in found if each.severity is Severity.FAILURE and "fit" in each.found)
    assert f":{node.port} does not answer" in fault.found


def beside_the_registry(works: Spread, six: ClusterOfSix) -> tuple[RedisNode, list[DelayStore]]:
    """Return a master that has shards but not the registry, and the shards of the one that has."""
    registry = six.owner_of(routes_key(works.namespace))
    stores = shards_by_node(works, six)
    return next(each for each in stores if each is not registry), stores[registry]


def test_node_that_freezes_before_it_settles_takes_no_thread_of_a_lane(six: ClusterOfSix) -> None:
    works = Spread(six.url)
    (node, hit), (_, well), _ = shards_by_node(works, six).items()
    lane = works.runner.lanes["a"]
    works.publishers["a"].pause()
    for number, store in enumerate(hit):
        schedule(store, *(f"hit{number}-{n}" for n in range(100)))
    with started(works):
        wait_until(lambda: lane.in_flight >= 6, "most of a window")
        with node.frozen():
            began = works.clock.seconds()
            works.publishers["a"].resume()
            for number in range(10):
                schedule(well[number % len(well)], f"well{number}")
                wait_until(lambda n=number: len(works.published("well")) > n, "it", WITHIN_S)  # type: ignore[misc]
            assert works.clock.seconds() - began < 1.5


def test_stop_beside_a_frozen_node_ends_in_time(six: ClusterOfSix) -> None:
    works = Spread(six.url)
    (node, hit), *_ = shards_by_node(works, six).items()
    works.runner.start()
    for store in works.stores:
        schedule(store, *(f"{store.shard.number}-{n}" for n in range(100)))
    wait_until(lambda: works.published(f"{hit[0].shard.number}-"), "deliveries")
    with closing(works.connection), node.frozen(), ends_within(STOPS_WITHIN_S):
        works.runner.drain()


def test_shard_whose_slot_moves_goes_to_the_loop_of_its_new_node(six: ClusterOfSix) -> None:
    works = Spread(six.url)
    (_, here), (to, _), _ = shards_by_node(works, six).items()
    moving = here[0]
    (view,) = (each for each in works.runner.views() if each.shard == moving.shard)
    with started(works):
        with trickle(works, [moving], "a") as due_at:
            wait_until(lambda: len(works.published("a")) > 20, "deliveries")
            six.begin_migration(moving.shard.wake, to).end()
            wait_until(lambda: view.node.endswith(f":{to.port}"), "the loop of the new node")
            moved_at = works.clock.seconds()
            wait_until(lambda: len(works.published("a", moved_at)) > 20, "deliveries from there")
            assert threads_of(works) == 3
        wait_until(lambda: due_at.keys() <= works.published_at.keys(), "all to be published")
    assert Counter(len(each) for each in works.published_at.values()).keys() == {1}
