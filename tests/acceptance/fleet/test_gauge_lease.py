"""One worker at a time exports what a shard holds: sums over workers are right."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.registry import CollectorRegistry

from duebridge.errors import StoreError, StoreUnavailable
from duebridge.store.delay_store import DelayStore
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import open_connection
from duebridge.worker.gauge_lease import LEASE_MS, RENEW_EVERY_S
from duebridge.worker.process import Runner
from duebridge.worker.reporting.gauges import register
from duebridge.worker.shard import ShardView
from tests.acceptance.works import Works, started
from tests.support.floor import Floor
from tests.support.servers import wait_until

SHARD = {"route": "r", "shard": "0"}
PENDING = ("duebridge_envelopes", {**SHARD, "state": "pending"})
AGE = ("duebridge_oldest_due_age_seconds", SHARD)
EVERY_MS = round(1000 * RENEW_EVERY_S)


class Process:
    """What one worker process knows of the shard, and the metrics that it serves."""

    def __init__(self, floor: Floor, name: str) -> None:
        route = floor.config.routes["r"]
        self.view = ShardView(route, floor.stores["r"], floor.monotonic, exporter=name)
        self.registry = CollectorRegistry()
        register(lambda: [self.view], [floor.lane], registry=self.registry)

    def gauge(self, name: str, labels: dict[str, str]) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def processes(floor: Floor) -> list[Process]:
    """Two workers that serve the shard; the first has its gauge lease."""
    both = [Process(floor, "one"), Process(floor, "two")]
    floor.schedule("a", "b", delay="1h")
    turn_for(floor, both, 2000)
    assert pending(both) == [2, None]
    return both


def turn_for(floor: Floor, processes: list[Process], ms: int) -> None:
    """Let these workers poll, ten times a second; the others do nothing."""
    for _ in range(0, ms, 100):
        for each in processes:
            each.view.refresh()
        floor.advance(100)


def pending(processes: list[Process]) -> list[float | None]:
    return [each.gauge(*PENDING) for each in processes]


def test_gauges_of_a_shard_are_exported_by_one_worker(
    floor: Floor, processes: list[Process]
) -> None:
    for _ in range(60):
        turn_for(floor, processes, 1000)
        assert pending(processes) == [2, None]
    assert [each.gauge(*AGE) for each in processes] == [0, 0]
    assert [each.gauge("duebridge_store_up", SHARD) for each in processes] == [1, 1]


def test_worker_that_dies_is_followed_by_another_within_the_lease(
    floor: Floor, processes: list[Process]
) -> None:
    second = processes[1:]
    turn_for(floor, second, LEASE_MS - 3000)
    assert pending(second) == [None]
    turn_for(floor, second, 3000 + 1000)
    assert pending(processes) == [None, 2]


def test_worker_that_stops_is_followed_by_another_at_once(
    floor: Floor, processes: list[Process]
) -> None:
    first, second = processes
    first.view.gauge_lease.give_up(first.view.store)
    assert pending(processes) == [None, None]
    turn_for(floor, [second], EVERY_MS + 1000)
    assert pending(processes) == [None, 2]
    second.view.gauge_lease.give_up(second.view.store)
    first.view.gauge_lease.give_up(first.view.store)  # it has none: nothing is taken from anybody


def test_worker_cut_off_exports_nothing_once_another_may(
    floor: Floor, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    floor.advance(LEASE_MS - 3000)
    assert pending(processes) == [2, None]
    floor.advance(3000)
    assert pending(processes) == [None, None]
    assert processes[0].gauge(*AGE) == 0


@pytest.mark.parametrize("error", [StoreError("denied"), StoreUnavailable("MISCONF")])
def test_store_that_refuses_the_gauge_lease_is_polled_all_the_same(
    floor: Floor,
    processes: list[Process],
    monkeypatch: pytest.MonkeyPatch,
    error: StoreError,
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(DelayStore, "watch", refuse)
    floor.schedule("c", delay="1h")
    turn_for(floor, processes, LEASE_MS + 5000)
    assert pending(processes) == [None, None]
    assert [each.view.poll.pending for each in processes] == [3, 3]
    assert all(each.view.is_heard for each in processes)


def test_worker_without_gauges_never_asks(build_floor: Callable[..., Floor]) -> None:
    floor = build_floor()
    unnamed = Process(floor, "")
    turn_for(floor, [unnamed], 7000)
    other = Process(floor, "two")
    turn_for(floor, [other], 2000)
    assert (unnamed.view.gauge_lease.is_held, other.view.gauge_lease.is_held) == (False, True)


def test_process_that_drains_leaves_its_gauge_leases_to_the_next(
    embedded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duebridge.worker.drain.GIVE_UP_WITHIN_S", 30.0)
    works = Works(f"embedded:{embedded}", {"r": "a/t"})
    works.runner = Runner(works.config, works.connection, works.publishers, exports_gauges=True)
    with started(works):
        [view] = works.runner.views()
        wait_until(lambda: view.gauge_lease.is_held, "the gauge lease")
    with closing(open_connection(works.url)) as connection:
        route = works.config.routes["r"]
        store = RouteStore.open(connection, works.namespace, route).shards[0]
        assert store.watch("another", LEASE_MS).is_mine
