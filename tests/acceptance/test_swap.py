"""A worker process takes other routes over while it works, on a real Redis: nothing is lost."""

import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.registry import CollectorRegistry

from duebridge.config.models import Config
from duebridge.envelope import Envelope
from duebridge.errors import StoreUnavailable
from duebridge.producer import Producer
from duebridge.store.connection import open_connection
from duebridge.store.routes import Registry
from duebridge.worker.gauges import register
from duebridge.worker.process import Runner
from duebridge.worker.reload import Changes, SwapRefused
from duebridge_connectors.memory import MemoryPublisher
from tests.support.command import wait_until

WITHIN_S = 20.0


class Works:
    """A running worker with two memory brokers, and a producer of the same namespace."""

    def __init__(self, url: str) -> None:
        self.namespace = f"test-{secrets.token_hex(6)}"
        self.publishers = {"a": MemoryPublisher(), "b": MemoryPublisher()}
        self.config = self.configured({"r": "a/t", "s": "b/s"})
        self.connection = open_connection(url)
        self.runner = Runner(self.config, open_connection(url), self.publishers)

    def configured(self, routes: dict[str, str], **fields: Any) -> Config:
        """Return a configuration of routes to `broker/topic`; `fields` are of each route."""
        allow_absent = fields.pop("allow_absent", [])
        written = {
            name: {"target": dict(zip(("broker", "topic"), to.split("/"), strict=True)), **fields}
            for name, to in routes.items()
        }
        return Config.model_validate(
            {
                "version": 1,
                "store": {"namespace": self.namespace},
                "brokers": {name: {"type": "memory"} for name in self.publishers},
                "worker": {"batch": 10, "in_flight": 40},
                "routes": written,
                "allow_absent": allow_absent,
            }
        )

    def schedule(self, route: str, count: int, delay: str = "0ms", of: str = "") -> list[str]:
        ids = [f"{of or route}-{number}" for number in range(count)]
        envelopes = [Envelope.new(b"body", id=each, delay=delay) for each in ids]
        # as a producer does whose own file says nothing of this worker's
        config = self.configured({route: "a/any"})
        list(Producer(config, self.connection).schedule_many(route, envelopes))
        return ids

    def arrived(self, broker: str) -> list[tuple[str, str | None]]:
        delivered = self.publishers[broker].delivered
        return [(each.id, each.target.topic) for each in delivered]

    def await_arrivals(self, broker: str, count: int) -> None:
        assert self.publishers[broker].deliveries_arrive(count, WITHIN_S)

    def left(self) -> int:
        return sum(view.store.next().envelopes for view in self.runner.views())


@pytest.fixture
def works(redis_url: str) -> Iterator[Works]:
    works = Works(redis_url)
    works.runner.start()
    yield works
    for publisher in works.publishers.values():
        publisher.resume()
    works.runner.drain()
    client: Any = works.connection.client
    if keys := list(client.scan_iter(match=f"*{works.namespace}*", count=1000)):
        client.delete(*keys)
    works.connection.close()


def test_swap_settles_what_is_under_way_as_it_was_claimed(works: Works) -> None:
    works.publishers["a"].pause()
    works.schedule("r", 20, of="before")
    assert works.publishers["a"].deliveries_wait(20, WITHIN_S)
    works.runner.swap(works.configured({"r": "a/u", "s": "b/s"}))
    works.publishers["a"].resume()
    works.schedule("r", 20, of="after")
    works.await_arrivals("a", 40)
    wait_until(lambda: works.left() == 0, "every envelope to be acked")
    topics = Counter((each.split("-")[0], topic) for each, topic in works.arrived("a"))
    assert topics == {("before", "t"): 20, ("after", "u"): 20}


def test_swap_moves_a_route_to_another_broker(works: Works) -> None:
    works.runner.swap(works.configured({"r": "b/t", "s": "b/s"}))
    works.schedule("r", 5)
    works.await_arrivals("b", 5)
    assert works.arrived("a") == []


def test_swaps_under_load_lose_and_repeat_nothing(works: Works) -> None:
    scheduled: list[str] = []
    is_over = threading.Event()

    def schedule() -> None:
        for batch in range(30):
            scheduled.extend(works.schedule("r", 50, delay="20ms", of=f"b{batch}"))
        is_over.set()

    thread = threading.Thread(target=schedule)
    thread.start()
    turns = 0
    while not is_over.is_set() or turns < 4:
        turns += 1
        works.publishers["a"].deliveries_arrive(turns * 20, WITHIN_S)
        works.runner.swap(works.configured({"r": f"a/t{turns}", "s": f"b/s{turns % 2}"}))
    thread.join()
    works.await_arrivals("a", len(scheduled))
    wait_until(lambda: works.left() == 0, "every envelope to be acked")
    assert Counter(each for each, _ in works.arrived("a")) == dict.fromkeys(scheduled, 1)
    assert len({topic for _, topic in works.arrived("a")}) > 1


def test_swap_keeps_the_stations_of_unchanged_routes(works: Works) -> None:
    before = {view.route.name: view for view in works.runner.views()}
    works.runner.swap(works.configured({"r": "a/u", "s": "b/s"}))
    after = {view.route.name: view for view in works.runner.views()}
    assert after["s"] is before["s"]
    assert after["r"] is not before["r"]


def test_swap_listens_for_hints_of_the_new_routes(works: Works) -> None:
    works.runner.swap(works.configured({"r": "a/t", "s": "b/s", "new": "b/n"}))
    [new] = [each.store.shard for each in works.runner.views() if each.route.name == "new"]
    client: Any = works.connection.client
    wait_until(lambda: client.pubsub_numsub(new.wake)[0][1], "the subscription")


def test_removed_route_is_not_served_any_more(works: Works) -> None:
    changes = works.runner.swap(works.configured({"r": "a/t"}))
    assert changes == Changes([], ["s"], [])
    workers = works.runner.workers
    wait_until(lambda: sum(len(each.views) for each in workers) == 1, "a turn of each worker")
    works.schedule("s", 1)
    works.schedule("r", 1)
    works.await_arrivals("a", 1)
    assert works.arrived("b") == []
    assert [view.route.name for view in works.runner.views()] == ["r"]


def test_removed_route_with_envelopes_blocks_the_swap(works: Works) -> None:
    works.schedule("s", 1, delay="1h")
    with pytest.raises(SwapRefused) as caught:
        works.runner.swap(works.configured({"r": "a/u"}))
    assert str(caught.value) == (
        "routes.s: expected, since the store holds envelopes of it, until they are delivered or"
        " dropped; to leave them there, name it in allow_absent"
    )
    assert caught.value.may_pass
    works.schedule("r", 1)
    works.await_arrivals("a", 1)
    assert works.arrived("a") == [("r-0", "t")]


def test_removed_route_that_is_allowed_absent_keeps_its_envelopes(works: Works) -> None:
    works.schedule("s", 1, delay="1h")
    works.runner.swap(works.configured({"r": "a/t"}, allow_absent=["s"]))
    assert [view.route.name for view in works.runner.views()] == ["r"]
    works.runner.swap(works.configured({"r": "a/t", "s": "b/s"}))
    assert works.left() == 1


def test_route_that_only_the_store_knows_blocks_the_swap(works: Works) -> None:
    works.schedule("older", 1, delay="1h")
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
    open_route, before = Registry.open_route, works.runner.views()

    def fail_at_b(registry: Registry, name: str, shards: int) -> int:
        if name == "new":
            raise StoreUnavailable("away")
        return open_route(registry, name, shards)

    monkeypatch.setattr(Registry, "open_route", fail_at_b)
    with pytest.raises(StoreUnavailable):
        works.runner.swap(works.configured({"r": "a/u", "s": "b/s", "new": "a/n"}))
    assert works.runner.views() == before
    works.schedule("r", 1)
    works.await_arrivals("a", 1)
    assert works.arrived("a") == [("r-0", "t")]
    monkeypatch.undo()
    assert works.runner.swap(works.configured({"r": "a/u", "s": "b/s"})).changed == ["r"]


def test_gauges_follow_the_swap(works: Works) -> None:
    registry = CollectorRegistry()
    register(works.runner.views, works.runner.lanes.values(), registry=registry)
    works.runner.swap(works.configured({"r": "a/t", "new": "a/n"}))

    def gauge(route: str) -> float | None:
        labels = {"route": route, "shard": "0", "state": "pending"}
        return registry.get_sample_value("duebridge_envelopes", labels)

    assert (gauge("new"), gauge("s")) == (0.0, None)


def test_absent_counts_what_the_store_holds_of_routes_that_nobody_serves(works: Works) -> None:
    works.schedule("old", 3, delay="1h")
    works.schedule("drained", 1)
    Producer(works.configured({"drained": "a/t"}), works.connection).cancel("drained", "drained-0")
    assert works.runner.absent() == {"old": 3}
    works.runner.swap(works.configured({"r": "a/t", "s": "b/s"}, allow_absent=["old"]))
    assert works.runner.absent() == {}
