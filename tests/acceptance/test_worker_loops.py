"""One loop a node of the store: what is slow or away at one node delays no shard of another."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from structlog.testing import capture_logs

from duebridge.config.models import Config
from duebridge.envelope import Envelope
from duebridge.errors import StoreError
from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from duebridge.store.delay_store import DelayStore
from duebridge.store.routes import RouteStore
from duebridge.store.server.connection import Connection
from duebridge.worker.lanes.lane import Lane, Outgoing
from tests.acceptance.site import memory_config
from tests.acceptance.works import WITHIN_S, Works
from tests.support.redis_sets import ClusterOfSix, RedisNode, redis_cluster_of_six
from tests.support.servers import wait_until

SHARDS = 12
EVERY_S = 0.02
STOPS_WITHIN_S = 2.0 + 1.0 + 2.0  # drain + publish_deadline + 2 s
WORKER = {"batch": 10, "in_flight": 40, "drain": "2s", "publish_deadline": "1s"}


class Spread(Works):
    """A worker of a route with many shards, or of several; notes when each was published."""

    def __init__(self, url: str, shards: int = SHARDS, routes: Sequence[str] = ("r",)) -> None:
        super().__init__(url, {each: f"a/{each}" for each in routes}, shards=shards, lease="10s")
        self.published_at: dict[str, list[float]] = {}
        self.publishers["a"].script(self._note)
        self.stores = [
            store
            for each in routes
            for store in RouteStore(self.connection, self.namespace, each, shards).shards
        ]

    def configured(
        self, routes: dict[str, str], allow_absent: Sequence[str] = (), **fields: Any
    ) -> Config:
        del allow_absent
        return memory_config(
            {each: {"target": {"broker": "a", "topic": each}, **fields} for each in routes},
            store={"namespace": self.namespace},
            brokers={"a": {"type": "memory"}, "b": {"type": "memory"}},
            worker=WORKER,
        )

    def _note(self, delivery: Delivery) -> None:
        self.published_at.setdefault(delivery.id, []).append(time.monotonic())

    def published(self, prefix: str, since: float = 0.0) -> list[float]:
        """Return when envelopes were published, in order."""
        found = [
            at
            for name, ats in dict(self.published_at).items()
            if name.startswith(prefix)
            for at in ats
        ]
        return sorted(at for at in found if at >= since)


@contextmanager
def started(works: Spread) -> Iterator[None]:
    works.runner.start()
    try:
        yield
    finally:
        works.publishers["a"].resume()
        works.runner.drain()
        works.connection.close()


def schedule(store: DelayStore, *ids: str, delay: str = "1ms") -> None:
    envelopes = [Envelope.new(b"body", id=each, delay=delay) for each in ids]
    store.schedule(envelopes, max_delay_ms=10**9)


@contextmanager
def trickle(stores: list[DelayStore], prefix: str) -> Iterator[dict[str, float]]:
    """Schedule an envelope every 20 ms at one of the shards in turn; give when each was due."""
    due_at: dict[str, float] = {}
    stop = threading.Event()

    def run() -> None:
        number = 0
        while not stop.wait(EVERY_S):
            name, number = f"{prefix}{number}", number + 1
            with suppress(StoreError):
                schedule(stores[number % len(stores)], name)
                due_at[name] = time.monotonic()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield due_at
    finally:
        stop.set()
        thread.join()


def longest_gap_s(times: list[float], since: float, until: float) -> float:
    within = [since, *(at for at in times if since < at < until), until]
    return max(later - earlier for earlier, later in pairwise(within))


@pytest.fixture(scope="module")
def running_six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfSix]:
    home = tmp_path_factory.mktemp("six")
    # No failover meanwhile: a node that is frozen stays the one that is asked.
    with redis_cluster_of_six(home, "--appendonly", "yes", node_timeout_ms=15_000) as running:
        yield running


@pytest.fixture
def six(running_six: ClusterOfSix) -> ClusterOfSix:
    running_six.await_whole()
    return running_six


def shards_by_port(works: Spread, six: ClusterOfSix) -> dict[int, list[DelayStore]]:
    """Return the shards of each master, by its port."""
    found: dict[int, list[DelayStore]] = {}
    for store in works.stores:
        found.setdefault(six.owner_of(store.shard.wake).port, []).append(store)
    assert len(found) == 3
    return found


def test_frozen_node_delays_no_shard_of_another(six: ClusterOfSix) -> None:
    works = Spread(six.url)
    (port, hit), (_, well), _ = shards_by_port(works, six).items()
    frozen = next(each for each in six.nodes if each.port == port)
    with started(works), trickle(well, "well"), capture_logs() as logs:
        wait_until(lambda: len(works.published("well")) > 20, "deliveries")
        for number, store in enumerate(hit):
            schedule(store, *(f"hit{number}-{n}" for n in range(300)))
        wait_until(lambda: works.published("hit"), "the backlog to flow")
        began = time.monotonic()
        frozen.freeze()
        try:
            wait_until(lambda: time.monotonic() > began + 4.0, "some seconds")
        finally:
            frozen.resume()
        ended = began + 4.0
        assert longest_gap_s(works.published("well"), began, ended) < 1.0
        wait_until(lambda: len(works.published("hit")) >= 300 * len(hit), "the backlog", WITHIN_S)
    nodes = {each["node"] for each in logs if each["event"] == "store_unavailable"}
    assert {int(node.rpartition(":")[2]) for node in nodes} == {port}


def test_node_that_freezes_before_it_settles_takes_no_thread_of_a_lane(six: ClusterOfSix) -> None:
    works = Spread(six.url)
    (port, hit), (_, well), _ = shards_by_port(works, six).items()
    frozen = next(each for each in six.nodes if each.port == port)
    lane = works.runner.lanes["a"]
    works.publishers["a"].pause()
    for number, store in enumerate(hit):
        schedule(store, *(f"hit{number}-{n}" for n in range(100)))
    with started(works):
        wait_until(lambda: lane.in_flight >= 6, "most of a window")
        frozen.freeze()
        try:
            began = time.monotonic()
            works.publishers["a"].resume()
            for number in range(10):
                schedule(well[number % len(well)], f"well{number}")
                wait_until(lambda n=number: len(works.published("well")) > n, "it", 1.0)  # type: ignore[misc]
            assert time.monotonic() - began < 1.5
        finally:
            frozen.resume()


def test_slow_node_delays_no_shard_of_another(six: ClusterOfSix) -> None:
    works = Spread(six.url)
    (port, hit), (_, well), _ = shards_by_port(works, six).items()
    slow = next(each for each in six.nodes if each.port == port)
    with started(works), trickle(well, "well") as due_at:
        for number, store in enumerate(hit):
            schedule(store, *(f"hit{number}-{n}" for n in range(300)))
        wait_until(lambda: works.published("hit"), "the backlog to flow")
        with slowed(slow):
            before = set(due_at)
            wait_until(lambda: len(due_at) > len(before) + 150, "time with a slow node")
            watched = due_at.keys() - before
            wait_until(lambda: watched <= works.published_at.keys(), "the deliveries")
    late_s = sorted(works.published_at[each][0] - due_at[each] for each in watched)
    assert median(late_s) < 0.1, late_s[-20:]
    assert late_s[len(late_s) * 9 // 10] < 0.25, late_s[-20:]


@contextmanager
def slowed(node: RedisNode) -> Iterator[None]:
    """Have a node answer in some 300 ms."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            node.freeze()
            stop.wait(0.3)
            node.resume()
            stop.wait(0.01)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        node.resume()


def test_stop_beside_a_frozen_node_ends_in_time(six: ClusterOfSix) -> None:
    works = Spread(six.url)
    (port, hit), *_ = shards_by_port(works, six).items()
    frozen = next(each for each in six.nodes if each.port == port)
    works.runner.start()
    for store in works.stores:
        schedule(store, *(f"{store.shard.number}-{n}" for n in range(100)))
    wait_until(lambda: works.published(f"{hit[0].shard.number}-"), "deliveries")
    frozen.freeze()
    try:
        began = time.monotonic()
        works.runner.drain()
        assert time.monotonic() - began < STOPS_WITHIN_S
    finally:
        frozen.resume()
        works.connection.close()


def test_shard_whose_slot_moves_goes_to_the_loop_of_its_new_node(six: ClusterOfSix) -> None:
    works = Spread(six.url)
    (_, here), (port, _), _ = shards_by_port(works, six).items()
    moving = here[0]
    to = next(each for each in six.nodes if each.port == port)
    (view,) = (each for each in works.runner.views() if each.shard == moving.shard)
    with started(works):
        with trickle([moving], "a") as due_at:
            wait_until(lambda: len(works.published("a")) > 20, "deliveries")
            six.begin_migration(moving.shard.wake, to).end()
            wait_until(lambda: view.node.endswith(f":{port}"), "the loop of the new node")
            moved_at = time.monotonic()
            wait_until(lambda: len(works.published("a", moved_at)) > 20, "deliveries from there")
            assert threads_of(works) == 3
        wait_until(lambda: due_at.keys() <= works.published_at.keys(), "all to be published")
    assert Counter(len(each) for each in works.published_at.values()).keys() == {1}


def loops_running() -> int:
    return sum(each.name.startswith("worker-") for each in threading.enumerate())


def threads_of(works: Works) -> int:
    names = [each.node for each in works.runner.worker._loops.values()]
    alive = [each.name for each in threading.enumerate()]
    return sum(alive.count(f"worker-{name}") for name in names)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Make one server two nodes; gives the node of each shard."""
    found = {"r:0": "x", "r:1": "y", "q:0": "y"}

    def node_of(_: Connection, key: str) -> str:
        shard = key.partition("}")[0].partition(":")[2]
        return found.get(shard, "")

    monkeypatch.setattr(Connection, "node_of", node_of)
    return found


class Held:
    """A shard one of whose calls waits; counts the callers that are in it."""

    def __init__(self, store: DelayStore, go_on: threading.Event, method: str) -> None:
        self._store, self._go_on, self._method = store, go_on, method
        self._lock = threading.Lock()
        self.inside = self.most = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._hold, found) if name == self._method else found

    def _hold(self, call: Callable[..., Any], *args: Any, **fields: Any) -> Any:
        self._count(1)
        try:
            self._go_on.wait(WITHIN_S)
            return call(*args, **fields)
        finally:
            self._count(-1)

    def _count(self, sign: int) -> None:
        with self._lock:
            self.inside += sign
            self.most = max(self.most, self.inside)


class Together:
    """A shard whose claims wait until both loops claim, so that both have looked at the room."""

    def __init__(self, store: DelayStore, barrier: threading.Barrier) -> None:
        self._store, self._barrier = store, barrier

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, *args: Any, **fields: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            self._barrier.wait(0.5)
        return self._store.claim(*args, **fields)


def test_loops_that_claim_at_once_never_overrun_a_window(
    embedded: Path, nodes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    works = Spread(f"embedded:{embedded}", 1, ("r", "q"))
    overruns: list[tuple[int, int]] = []
    begin = Lane.begin

    def observed(self: Lane, outgoing: Outgoing) -> None:
        begin(self, outgoing)
        overruns.append((self.window.outstanding.envelopes, self.window.size.envelopes))

    monkeypatch.setattr(Lane, "begin", observed)
    works.publishers["a"].pause()
    with started(works):
        lane = works.runner.lanes["a"]
        schedule(works.stores[0], *(f"first-{n}" for n in range(6)))
        wait_until(lambda: lane.in_flight == 6, "the first claims")
        barrier = threading.Barrier(2)
        for view in works.runner.views():
            view.store = Together(view.store, barrier)  # type: ignore[assignment]
        for number, store in enumerate(works.stores):
            schedule(store, *(f"{number}-{n}" for n in range(200)))
        wait_until(lambda: lane.in_flight == 10, "a full window")
        works.publishers["a"].resume()
        works.await_arrivals(406)
        wait_until(lambda: works.left() == 0, "the acks")
        assert lane.window.reserved == []
    assert [each for each in overruns if each[0] > each[1]] == []


def test_claim_that_its_store_holds_up_leaves_room_to_other_loops(
    embedded: Path, nodes: dict[str, str]
) -> None:
    works = Spread(f"embedded:{embedded}", 2)
    go_on = threading.Event()
    held = Held(works.runner.views()[0].store, go_on, "claim")
    works.runner.views()[0].store = held  # type: ignore[assignment]
    schedule(works.stores[0], *(f"held{n}" for n in range(100)))
    with started(works):
        wait_until(lambda: held.inside == 1, "a claim that waits")
        for number in range(30):
            schedule(works.stores[1], f"well{number}")
            works.await_arrivals(number + 1)
        assert works.published("held") == []
        go_on.set()
        works.await_arrivals(130)


def test_shard_that_moves_amid_a_call_is_asked_by_one_loop_at_a_time(
    embedded: Path, nodes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duebridge.worker.worker.LOOK_EVERY_S", 0.01)
    works = Spread(f"embedded:{embedded}", 2)
    go_on = threading.Event()
    view, _ = works.runner.views()
    held = Held(view.store, go_on, "next")
    view.store = held  # type: ignore[assignment]
    with started(works):
        wait_until(lambda: held.inside == 1, "a poll that waits")
        nodes["r:0"] = "y"
        wait_until(lambda: view.node == "y", "the move")
        for number in range(10):  # the other loop has turns
            works.runner.worker.wake(view)
            schedule(works.stores[1], f"well{number}")
            works.await_arrivals(number + 1)
        assert held.most == 1
        go_on.set()
        schedule(works.stores[0], "moved")
        works.await_arrivals(11)


def test_shards_that_hop_between_loops_are_delivered_once(
    embedded: Path, nodes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duebridge.worker.worker.LOOK_EVERY_S", 0.002)
    works = Spread(f"embedded:{embedded}", 2)
    seen: set[tuple[str, ...]] = set()
    with started(works):
        for number, store in enumerate(works.stores):
            for page in range(4):
                schedule(store, *(f"{number}-{page}-{n}" for n in range(250)))
        while not works.publishers["a"].deliveries_arrive(2000, 0.01):
            nodes["r:0"], nodes["r:1"] = ("z", "x") if nodes["r:0"] == "x" else ("x", "y")
            seen.add(tuple(view.node for view in works.runner.views()))
        wait_until(lambda: works.left() == 0, "the acks")
        assert works.runner.is_alive
        wait_until(lambda: threads_of(works) == loops_running(), "loops without shards to end")
    assert len(seen) > 1
    assert Counter(len(each) for each in works.published_at.values()) == {1: 2000}


def test_held_target_is_tried_once_a_second_by_all_loops_together(
    embedded: Path, nodes: dict[str, str]
) -> None:
    works = Spread(f"embedded:{embedded}", 2)
    missing = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "Missing", "no such topic")
    tried_at: list[float] = []

    def answer(_: Delivery) -> Outcome:
        tried_at.append(time.monotonic())
        return missing

    works.publishers["a"].script(answer)
    for number, store in enumerate(works.stores):
        schedule(store, *(f"{number}-{n}" for n in range(50)))
    with started(works):
        lane = works.runner.lanes["a"]
        wait_until(lambda: lane.targets.held() and works.left() == 100, "the target to be held")
        wait_until(lambda: not lane.in_flight, "the first batches to end")
        held_at = time.monotonic()
        wait_until(lambda: time.monotonic() > held_at + 3.5, "some probes")
        probes = [at for at in tried_at if at > held_at]
        works.publishers["a"].script(lambda _: None)
        works.await_arrivals(100)
        well_s = time.monotonic() - held_at - 3.5
    assert 3 <= len(probes) <= 4
    assert min(later - earlier for earlier, later in pairwise(probes)) > 0.9
    assert well_s < 2.0


def test_hint_wakes_only_the_loop_of_its_shard(embedded: Path, nodes: dict[str, str]) -> None:
    works = Spread(f"embedded:{embedded}", 2)
    worker = works.runner.worker
    view = works.runner.views()[0]
    worker.wake(view)
    assert {loop.node for loop in worker._loops.values() if loop._woken.is_set()} == {"x", "y"}
    for loop in worker._loops.values():
        loop._woken.clear()
    worker.wake(view)
    assert {loop.node for loop in worker._loops.values() if loop._woken.is_set()} == {"x"}
    works.connection.close()


def test_idle_time_is_that_of_the_loop_that_stands_still(
    embedded: Path, nodes: dict[str, str]
) -> None:
    works = Spread(f"embedded:{embedded}", 2)
    stuck, go_on = works.runner.views()[0], threading.Event()
    stuck.store = Held(stuck.store, go_on, "next")  # type: ignore[assignment]
    with started(works):
        wait_until(lambda: works.runner.worker.idle_s() > 1.5, "the idle time")
        schedule(works.stores[1], "a")
        works.await_arrivals(1)
        go_on.set()
        wait_until(lambda: works.runner.worker.idle_s() < 1.2, "the loop to go on")
