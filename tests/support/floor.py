"""A worker on an embedded store with a memory broker, turned by hand, its clocks under control."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from duebridge.config.models import Config
from duebridge.envelope import Envelope
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.life import RouteLife
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Connection
from duebridge.worker.lanes.lane import Lane
from duebridge.worker.shard import ShardView
from duebridge.worker.worker import Worker
from duebridge_connectors.memory import MemoryPublisher
from tests.support.servers import wait_until

START_MS = 1_800_000_000_000


class InlineExecutor(Executor):
    """Runs what is submitted at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Floor:
    """Everything of one worker process; one broker in memory stands for all of the routes."""

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        config: Config,
        *,
        exports_gauges: bool = False,
    ) -> None:
        self.elapsed_ms = 0
        self.config = config
        self.publisher = MemoryPublisher()
        self.lane = self._lane(InlineExecutor())
        self.stores = {name: self._store(connection, namespace, name) for name in config.routes}
        self.views = {
            name: ShardView(
                route, self.stores[name], self.monotonic, exporter="floor" if exports_gauges else ""
            )
            for name, route in config.routes.items()
        }
        self.worker = self.new_worker()

    def _store(self, connection: Connection, namespace: str, name: str) -> DelayStore:
        has_dead_letter = self.config.routes[name].dead_letter is not None
        shard = Shard(namespace, name, 0)
        life = RouteLife(Registry(connection, namespace), name, 1, registers=True)
        return DelayStore(
            connection, shard, has_dead_letter=has_dead_letter, now_ms=self.now_ms, life=life
        )

    def _lane(self, threads: Executor) -> Lane:
        return Lane("memory", self.publisher, self.config.worker, threads, None, self.monotonic)

    def new_worker(self, threads: Executor | None = None) -> Worker:
        """Return a worker on the same shards; its lane has `threads`, or is the floor's own."""
        if threads is not None:
            self.lane = self._lane(threads)
            self.lane.ping()
            wait_until(lambda: self.lane.is_open, "the lane to open")
        lanes = dict.fromkeys(self.config.brokers, self.lane)
        return Worker(lanes, list(self.views.values()), self.monotonic)

    def warm_up(self) -> None:
        """Let the windows of the routes' targets be as wide as after a while of traffic."""
        for route in self.config.routes.values():
            self.lane.targets.of(route.target).window.size = self.lane.window.size

    def now_ms(self) -> int:
        return START_MS + self.elapsed_ms

    def monotonic(self) -> float:
        return 1000 + self.elapsed_ms / 1000

    def advance(self, ms: int) -> None:
        self.elapsed_ms += ms

    def schedule(self, *ids: str, route: str = "r", delay: str = "1s", **fields: Any) -> None:
        body = fields.pop("body", None)
        envelopes = [
            Envelope.new(body or f"body of {each}".encode(), id=each, delay=delay, **fields)
            for each in ids
        ]
        self.stores[route].schedule(envelopes, max_delay_ms=10**12)

    def damage(self, id: str, route: str = "r") -> None:
        """Cut an envelope's record off, so that nobody can read it."""
        store = self.stores[route]
        client, key = store._connection.client, store.shard.key("envelopes")
        client.hset(key, id, client.hget(key, id)[:45])

    def poison(self, id: str, lease_ms: int) -> None:
        """Schedule an envelope that loses its leases in turn; the last has just ended."""
        self.schedule(id, delay="0ms")
        store = self.stores["r"]
        store.promote()
        for alone in (False, False, True):
            assert store.claim(1, lease_ms, alone=alone).ids == [id]
            self.advance(lease_ms)
            if not alone:
                store.reclaim()

    def turn(self, ms: int = 0) -> int:
        """Let time pass, then let the worker turn until it finds nothing more to do."""
        self.advance(ms)
        moved = total = self.worker.run_once()
        while moved:
            moved = self.worker.run_once()
            total += moved
        return total

    def state(self, id: str, route: str = "r") -> str | None:
        entry = self.stores[route].get(id)
        return entry.state if entry else None

    def flight(self, id: str, route: str = "r") -> Any:
        entry = self.stores[route].get(id)
        assert entry is not None
        return entry.flight

    def arrived(self, topic: str = "t") -> list[str]:
        return [each.id for each in self.publisher.delivered if each.target.topic == topic]

    def headers(self, id: str, topic: str = "t") -> dict[str, Any]:
        found = [
            each for each in self.publisher.delivered if (each.id, each.target.topic) == (id, topic)
        ]
        return dict(found[-1].headers)


def let_each_call_take_1_ms(floor: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the floor's clock go on with each call of the store."""
    plain = Connection.run

    def run(*given: Any, **how: Any) -> Any:
        floor.advance(1)
        return plain(*given, **how)

    monkeypatch.setattr(Connection, "run", run)
