"""Assembles a worker process: one lane and one worker per broker; starts, swaps, drains them."""

import gc
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import structlog

from duebridge.config.models import Config, Route
from duebridge.ports.publisher import Publisher
from duebridge.store.connection import REPEAT_FOR_S, Connection
from duebridge.store.fitness import check_fitness
from duebridge.store.keys import Shard
from duebridge.store.routes import Registry, RouteStore
from duebridge.store.wakeup import WakeListener
from duebridge.telemetry import metrics
from duebridge.telemetry.tracing import Tracing
from duebridge.worker.dead_letters import Shunter
from duebridge.worker.lane import Lane
from duebridge.worker.reload import (
    Changes,
    SwapRefused,
    changes_between,
    fixed_at_start,
    left_behind,
    other_shards,
)
from duebridge.worker.shard import Gate, ShardView
from duebridge.worker.worker import Worker

MAX_THREADS = 16  # per lane; each has at most one batch in flight
CLOSE_WITHIN_S = 5.0

log = structlog.get_logger()


class Runner:
    """A worker process: delivers the envelopes of every route from `start` until `drain`."""

    def __init__(
        self,
        config: Config,
        connection: Connection,
        publishers: Mapping[str, Publisher],
        *,
        is_watched: bool = False,
        tracing: Tracing | None = None,
    ) -> None:
        """Check the store and open the routes in it; raises `StoreUnfit` or `StoreUnavailable`.

        `is_watched` also collects the statistics that only gauges need.
        """
        self._config = config
        self._connection = connection
        self._is_watched = is_watched
        self._tracing = tracing
        for fault in check_fitness(connection, config.store.allow_unfit, REPEAT_FOR_S):
            log.warning("store_unfit", fault=fault)
        connection.load_scripts(REPEAT_FOR_S)
        self.lanes = {
            name: Lane(name, publisher, config.worker) for name, publisher in publishers.items()
        }
        self._pools = {name: self._pool(name) for name in self.lanes}
        self._registry = Registry(connection, config.store.namespace)
        self._views = {name: self._open(route) for name, route in config.routes.items()}
        self.workers = [self._worker(name) for name in self.lanes]
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=worker.run, args=(self._stop,), name=f"worker-{worker.lane.broker}"
            )
            for worker in self.workers
        ]
        self._listener = WakeListener(connection, self._wake_calls())

    def _pool(self, name: str) -> ThreadPoolExecutor:
        settings = self._config.worker
        threads = max(1, min(MAX_THREADS, settings.in_flight // settings.batch))
        return ThreadPoolExecutor(threads, thread_name_prefix=f"lane-{name}")

    def _worker(self, broker: str) -> Worker:
        pool = self._pools[broker]
        views = self._views_of(broker)
        shunter = Shunter(self.lanes, pool)
        return Worker(self.lanes[broker], views, shunter, pool, tracing=self._tracing)

    def _views_of(self, broker: str) -> list[ShardView]:
        return [
            view for views in self._views.values() for view in views if view.target.broker == broker
        ]

    def _open(self, route: Route) -> list[ShardView]:
        metrics.begin(route.name)
        gate = Gate()
        stores = RouteStore.open(
            self._connection,
            self._config.store.namespace,
            route,
            settle_for_s=route.lease / 1000 / 2,
        )
        return [
            ShardView(route, store, gate, is_watched=self._is_watched) for store in stores.shards
        ]

    def _wake_calls(self) -> dict[Shard, "partial[None]"]:
        return {
            view.store.shard: partial(worker.wake, view)
            for worker in self.workers
            for view in self._views_of(worker.lane.broker)
        }

    def start(self) -> None:
        """Start the worker threads."""
        self._listener.start()
        for thread in self._threads:
            thread.start()
        log.info("started", routes=len(self._config.routes), lanes=len(self.lanes))

    @property
    def config(self) -> Config:
        """The configuration in effect."""
        return self._config

    def views(self) -> list[ShardView]:
        """Return all shards that this process currently serves."""
        return [view for views in self._views.values() for view in views]

    def swap(self, config: Config) -> Changes:
        """Apply the routes of another configuration: all of them, or none if it raises.

        Workers switch between two turns; batches in flight are settled with their old settings.
        Unchanged routes are not interrupted. Raises `SwapRefused` and `StoreError`.
        """
        self._refuse_unless_swappable(config)
        changes = changes_between(self._config, config)
        reopened = {*changes.added, *changes.changed}
        self._views = {
            name: self._open(route) if name in reopened else self._views[name]
            for name, route in config.routes.items()
        }
        self._config = config
        if any(changes):
            for worker in self.workers:
                worker.swap(self._views_of(worker.lane.broker))
            self._listener.listen_for(self._wake_calls())
        return changes

    def _refuse_unless_swappable(self, config: Config) -> None:
        if reasons := fixed_at_start(self._config, config, self.lanes):
            raise SwapRefused(reasons, may_pass=False)
        registered = self._registered()
        holding = list(self._absent(config, registered))
        if reasons := other_shards(config, registered) + left_behind(holding):
            raise SwapRefused(reasons, may_pass=True)

    def absent(self) -> dict[str, int]:
        """Count stored envelopes by route, for routes neither configured nor in `allow_absent`."""
        return self._absent(self._config, self._registered())

    def _registered(self) -> dict[str, int]:
        return {name: route.shards for name, route in self._registry.routes().items()}

    def _absent(self, config: Config, registered: Mapping[str, int]) -> dict[str, int]:
        names = sorted(registered.keys() - config.routes.keys() - set(config.allow_absent))
        counts = {name: self._envelopes(name, registered[name]) for name in names}
        return {name: count for name, count in counts.items() if count}

    def _envelopes(self, route: str, shards: int) -> int:
        stores = RouteStore(self._connection, self._config.store.namespace, route, shards)
        return sum(store.next().envelopes for store in stores.shards)

    def drain(self) -> None:
        """Stop claiming, settle batches in flight within `worker.drain`, then close everything.

        With a healthy broker, unack is empty afterwards and nothing is delivered twice.
        """
        give_up_at = time.monotonic() + self._config.worker.drain / 1000
        self._stop.set()
        for worker, thread in zip(self.workers, self._threads, strict=True):
            worker.wake()
            thread.join()
        for worker in self.workers:
            worker.drain(max(0.0, give_up_at - time.monotonic()))
        for lane in self.lanes.values():
            lane.close()
        for worker in self.workers:
            worker.drain(CLOSE_WITHIN_S)
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._listener.close()
        self._connection.close()
        log.info("drained")


# Python's default of 700 allocations runs the collector every few messages and finds no garbage.
THRESHOLDS = (50_000, 20, 50)


@contextmanager
def tuned_gc() -> Iterator[None]:
    """Run the cyclic garbage collector less often; reference counting is unaffected.

    The setting applies to the whole interpreter: use it only in processes that duebridge owns.
    """
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
