"""One loop a node of the store: what is slow or away at one node delays no shard of another."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from duebridge.store.delay_store import DelayStore
from duebridge.store.server.connection import Connection
from duebridge.worker.lanes.lane import Lane, OutgoingBatch
from tests.acceptance.worker.spread import (
    Spread,
    loops_running,
    schedule,
    started,
    threads_of,
)
from tests.acceptance.works import WITHIN_S
from tests.support.servers import wait_until


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

    def observed(self: Lane, outgoing: OutgoingBatch) -> None:
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
    monkeypatch.setattr("duebridge.worker.worker.NODES_EVERY_S", 0.01)
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
    monkeypatch.setattr("duebridge.worker.worker.NODES_EVERY_S", 0.002)
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
        wait_until(lambda: sum(at > held_at for at in tried_at) >= 3, "some probes")
        probes = [at for at in tried_at if at > held_at]
        works.publishers["a"].script(lambda _: None)
        works.await_arrivals(100)
    assert min(later - earlier for earlier, later in pairwise(probes)) > 0.9


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
