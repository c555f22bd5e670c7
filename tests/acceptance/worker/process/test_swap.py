"""A worker process takes other routes over while it works: nothing is lost."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.registry import CollectorRegistry

from duebridge.envelope import Envelope, Target
from duebridge.errors import StoreUnavailable
from duebridge.producer import Producer
from duebridge.store.cold.notes import ColdNotes
from duebridge.store.keys import Shard, routes_key
from duebridge.store.registry import Life, Registry
from duebridge.store.routing import RouteStore
from duebridge.worker.reload import Changes, SwapRefused
from duebridge.worker.reporting.gauges import register
from tests.acceptance.works import WITHIN_S, Works, started
from tests.support.command import wait_until
from tests.support.network.proxy import proxied
from tests.support.redis.redis_node import RedisNode
from tests.support.redis.redis_sets import ClusterOfSix
from tests.support.servers import redis_server

HALF_A_LEASE_S = 15.0  # of the default
R_AND_S = {"r": "a/t", "s": "b/s"}


@pytest.fixture
def works(embedded: Path) -> Iterator[Works]:
    with started(Works(f"embedded:{embedded}", R_AND_S)) as works:
        yield works


def schedule(works: Works, route: str, count: int, delay: str = "0ms", of: str = "") -> list[str]:
    """Schedule as a producer does whose own file says nothing of this worker's."""
    ids = [f"{of or route}-{number}" for number in range(count)]
    envelopes = [Envelope.new(b"body", id=each, delay=delay) for each in ids]
    config = works.configured({route: "a/any"})
    Producer(config, works.connection).schedule_many(route, envelopes)
    return ids


def pass_turns(works: Works, route: str = "r", broker: str = "a") -> None:
    """Return after a whole turn of the worker: a turn claims at most one batch of a shard.

    A turn that began before a swap claims as it was.
    """
    for _ in range(2):
        arrived = len(works.arrived(broker))
        schedule(works, route, 1, of=f"{route}{arrived}")
        works.await_arrivals(arrived + 1, broker)


def test_swap_settles_what_is_under_way_as_it_was_claimed(works: Works) -> None:
    works.publishers["a"].pause()
    schedule(works, "r", 10, of="before")
    assert works.publishers["a"].deliveries_wait(10, WITHIN_S)
    works.runner.swap(works.configured({"r": "a/u", "s": "b/s"}))
    pass_turns(works, "s", "b")
    works.publishers["a"].resume()
    schedule(works, "r", 20, of="after")
    works.await_arrivals(30)
    wait_until(lambda: works.left() == 0, "every envelope to be acked")
    topics = Counter((each.split("-")[0], topic) for each, topic in works.arrived())
    assert topics == {("before", "t"): 10, ("after", "u"): 20}


def test_swap_moves_a_route_to_another_broker(works: Works) -> None:
    works.runner.swap(works.configured({"r": "b/t", "s": "b/s"}))
    pass_turns(works, "s", "b")
    ids = schedule(works, "r", 5)
    works.await_arrivals(2 + 5, "b")
    assert works.arrived() == []
    assert sorted(works.arrived("b")[2:]) == [(each, "t") for each in ids]


def test_own_target_waits_while_its_route_is_at_another_broker(works: Works) -> None:
    own = {"allow_targets": [{"broker": "a", "topic": "own"}]}
    there = Producer(works.configured({"r": "a/t"}, **own), works.connection)
    works.runner.swap(works.configured({"r": "b/t", "s": "b/s"}))
    pass_turns(works, "s", "b")
    there.schedule("r", b"body", id="own", delay="0ms", target=Target("a", topic="own"))
    [store] = [view.store for view in works.runner.views() if view.route.name == "r"]

    def is_held() -> bool:
        entry = store.get("own")
        return entry is not None and entry.flight.held_since_ms > 0

    wait_until(is_held, "the target to be held")
    assert "own" not in dict(works.arrived("a") + works.arrived("b"))
    works.runner.swap(works.configured({"r": "a/t", "s": "a/s"}, **own))
    works.await_arrivals(1)
    assert works.arrived() == [("own", "own")]


def test_swaps_under_load_lose_and_repeat_nothing(works: Works) -> None:
    scheduled: list[str] = []
    is_over = threading.Event()

    def keep_scheduling() -> None:
        for batch in range(30):
            scheduled.extend(schedule(works, "r", 50, delay="20ms", of=f"b{batch}"))
        is_over.set()

    thread = threading.Thread(target=keep_scheduling)
    thread.start()
    turns = 0
    while not is_over.is_set() or turns < 4:
        turns += 1
        works.publishers["a"].deliveries_arrive(turns * 20, WITHIN_S)
        works.runner.swap(works.configured({"r": f"a/t{turns}", "s": f"b/s{turns % 2}"}))
    thread.join()
    works.await_arrivals(len(scheduled))
    wait_until(lambda: works.left() == 0, "every envelope to be acked")
    assert Counter(each for each, _ in works.arrived()) == dict.fromkeys(scheduled, 1)
    assert len({topic for _, topic in works.arrived()}) > 1


def test_swap_listens_for_hints_of_the_new_routes(works: Works) -> None:
    works.runner.swap(works.configured({**R_AND_S, "new": "b/n"}))
    [new] = [each.store.shard for each in works.runner.views() if each.route.name == "new"]
    client = works.connection.client
    wait_until(lambda: client.pubsub_numsub(new.wake)[0][1], "the subscription")


def test_removed_route_is_not_served_any_more(works: Works) -> None:
    before = works.runner.views()
    changes = works.runner.swap(works.configured({"r": "a/t"}))
    assert changes == Changes([], ["s"], [])
    pass_turns(works)
    schedule(works, "s", 1)
    for view in before:
        works.runner.worker.wake(view)  # as a hint does
    pass_turns(works)
    assert works.arrived("b") == []
    assert [view.route.name for view in works.runner.views()] == ["r"]


def test_removed_route_with_envelopes_blocks_the_swap(works: Works) -> None:
    schedule(works, "s", 1, delay="1h")
    with pytest.raises(SwapRefused) as caught:
        works.runner.swap(works.configured({"r": "a/u"}))
    assert str(caught.value) == (
        "routes.s: expected, since the store holds envelopes of it, until they are delivered or"
        " dropped; to leave them there, name it in allow_absent"
    )
    assert caught.value.may_pass
    schedule(works, "r", 1)
    works.await_arrivals(1)
    assert works.arrived() == [("r-0", "t")]


def test_removed_route_whose_envelopes_may_be_cold_blocks_the_swap(works: Works) -> None:
    store = RouteStore(works.connection, works.namespace, "s", 1).shards[0]
    ColdNotes(works.connection, store.shard).note_first(1)
    with pytest.raises(SwapRefused) as caught:
        works.runner.swap(works.configured({"r": "a/u"}))
    assert str(caught.value) == (
        "routes.s: expected, since its cold tier may hold envelopes, until it is purged;"
        " to leave them there, name it in allow_absent"
    )
    works.runner.swap(works.configured({"r": "a/u"}, allow_absent=["s"]))
    assert [view.route.name for view in works.runner.views()] == ["r"]


def test_removed_route_that_is_allowed_absent_keeps_its_envelopes(works: Works) -> None:
    schedule(works, "s", 1, delay="1h")
    works.runner.swap(works.configured({"r": "a/t"}, allow_absent=["s"]))
    assert [view.route.name for view in works.runner.views()] == ["r"]
    works.runner.swap(works.configured(R_AND_S))
    assert works.left() == 1


def test_route_that_only_the_store_knows_blocks_the_swap(works: Works) -> None:
    schedule(works, "older", 1, delay="1h")
    with pytest.raises(SwapRefused, match=r"^routes\.older: expected"):
        works.runner.swap(works.configured({"r": "a/u", "s": "b/s"}))


def test_other_shards_refuse_the_whole_swap(works: Works) -> None:
    with pytest.raises(SwapRefused, match=r"^routes\.r\.shards: expected 1, as the store has it"):
        works.runner.swap(works.configured({"r": "a/u", "s": "b/u", "new": "a/n"}, shards=2))
    assert works.runner.views()[0].target.topic == "t"
    assert "new" not in Registry(works.connection, works.namespace).routes()


def test_store_that_goes_away_half_way_leaves_all_routes(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_life, before = Registry.open_life, works.runner.views()

    def fail_at_b(registry: Registry, name: str, shards: int, *, registers: bool) -> Life:
        if name == "new":
            raise StoreUnavailable("away")
        return open_life(registry, name, shards, registers=registers)

    monkeypatch.setattr(Registry, "open_life", fail_at_b)
    with pytest.raises(StoreUnavailable):
        works.runner.swap(works.configured({"r": "a/u", "s": "b/s", "new": "a/n"}))
    assert works.runner.views() == before
    schedule(works, "r", 1)
    works.await_arrivals(1)
    assert works.arrived() == [("r-0", "t")]
    monkeypatch.undo()
    assert works.runner.swap(works.configured({"r": "a/u", "s": "b/s"})).changed == ["r"]


def test_swap_of_a_store_that_falls_silent_ends_soon_whatever_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that swaps also waits for the stop."""
    monkeypatch.setattr("duebridge.worker.process.OPEN_WITHIN_S", 0.2)
    with redis_server(tmp_path, "--appendonly", "yes") as port, proxied(port) as proxy:
        works = Works(f"redis://127.0.0.1:{proxy.port}", R_AND_S)
        runner, before = works.runner, works.runner.views()
        plain = runner._registry.shards

        def registered() -> dict[str, int]:
            found = plain()
            proxy.fall_silent()
            return found

        monkeypatch.setattr(runner._registry, "shards", registered)
        caught: list[Exception] = []

        def swap() -> None:
            try:
                runner.swap(works.configured({"r": "a/u", "s": "b/u"}))
            except StoreUnavailable as error:
                caught.append(error)

        thread = threading.Thread(target=swap, daemon=True)
        thread.start()
        thread.join(HALF_A_LEASE_S - 5)
        assert len(caught) == 1
        assert runner.views() == before


# --- a Cluster of which one node is away ---


class Spread(NamedTuple):
    """A worker of the route `r`, a node without `r` and the registry, and names of routes."""

    works: Works
    away: RedisNode
    there: str  # on that node
    elsewhere: str

    def swap(self, *routes: str) -> Changes:
        config = self.works.configured({name: f"a/{name}" for name in ("r", *routes)})
        return self.works.runner.swap(config)

    def registered(self) -> set[str]:
        return set(Registry(self.works.connection, self.works.namespace).routes())


@pytest.fixture
def spread(steady_six: ClusterOfSix) -> Iterator[Spread]:
    steady_six.await_whole()
    with started(Works(steady_six.url, {"r": "a/t"})) as works:

        def owner(route: str) -> RedisNode:
            return steady_six.owner_of(Shard(works.namespace, route, 0).wake)

        keys = routes_key(works.namespace), Shard(works.namespace, "r", 0).wake
        needed = {steady_six.owner_of(key).port for key in keys}
        away = next(each for each in steady_six.masters() if each.port not in needed)
        names = [f"n{number}" for number in range(50)]
        there = next(name for name in names if owner(name) is away)
        elsewhere = next(name for name in names if owner(name) is not away)
        yield Spread(works, away, there, elsewhere)


def found(works: Works) -> dict[str, int] | None:
    """Return the absent routes; None while a node of theirs does not answer."""
    with suppress(StoreUnavailable):
        return works.runner.absent()
    return None


def test_swap_to_new_routes_of_which_one_is_on_a_node_that_is_away_is_applied(
    spread: Spread,
) -> None:
    with spread.away.frozen():
        assert {*spread.swap(spread.elsewhere, spread.there).added} == {
            spread.elsewhere,
            spread.there,
        }
        schedule(spread.works, spread.elsewhere, 1)
        wait_until(lambda: len(spread.works.arrived()) == 1, "the delivery")
    schedule(spread.works, spread.there, 1)
    wait_until(lambda: len(spread.works.arrived()) == 2, "the delivery of the other")


def test_absent_route_on_a_node_that_is_away_blocks_no_swap(spread: Spread) -> None:
    schedule(spread.works, spread.there, 1, delay="1h")
    with spread.away.frozen():
        assert spread.swap(spread.elsewhere).added == [spread.elsewhere]
        assert found(spread.works) is None
    wait_until(lambda: found(spread.works) is not None, "the node")
    with pytest.raises(SwapRefused, match=rf"^routes\.{spread.there}: expected"):
        spread.swap()


def test_swap_that_removes_a_route_on_a_node_that_is_away_is_refused(spread: Spread) -> None:
    spread.swap(spread.there)
    schedule(spread.works, spread.there, 1, delay="1h")
    with spread.away.frozen(), pytest.raises(StoreUnavailable):
        spread.swap()
    assert spread.there in spread.works.runner.config.routes


def test_gauges_follow_the_swap(works: Works) -> None:
    registry = CollectorRegistry()
    register(works.runner.views, works.runner.lanes.values(), registry=registry)
    works.runner.swap(works.configured({"r": "a/t", "new": "a/n"}))

    def has(route: str) -> bool:
        labels = {"route": route, "shard": "0"}
        return registry.get_sample_value("duebridge_store_up", labels) is not None

    assert (has("r"), has("new"), has("s")) == (True, True, False)


def test_absent_counts_what_the_store_holds_of_routes_that_nobody_serves(works: Works) -> None:
    schedule(works, "old", 3, delay="1h")
    schedule(works, "drained", 1)
    Producer(works.configured({"drained": "a/t"}), works.connection).cancel("drained", "drained-0")
    assert works.runner.absent() == {"old": 3}
    works.runner.swap(works.configured(R_AND_S, allow_absent=["old"]))
    assert works.runner.absent() == {}
