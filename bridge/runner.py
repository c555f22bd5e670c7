"""Puts a worker process together: a lane and a worker per broker, and how they stop."""

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from bridge.config import Config, Route
from bridge.lane import Lane
from bridge.publisher import Publisher
from bridge.shunter import Shunter
from bridge.station import Gate, Station
from bridge.store.connection import Connection
from bridge.store.delay_store import DelayStore
from bridge.store.fitness import check_fitness
from bridge.store.keys import Shard
from bridge.store.registry import Registry
from bridge.store.wakeup import WakeListener
from bridge.worker import Worker

MAX_THREADS = 16  # of a lane: each has one batch under way
CLOSE_WITHIN_S = 5.0

log = structlog.get_logger()


class Runner:
    """A worker process: from `start` until `drain` it moves the envelopes of every route."""

    def __init__(
        self, config: Config, connection: Connection, publishers: Mapping[str, Publisher]
    ) -> None:
        """Check the store and open the routes in it; raises `StoreUnfit` or `StoreUnavailable`."""
        self._config = config
        self._connection = connection
        for fault in check_fitness(connection, config.store.allow_unfit):
            log.warning("store_unfit", fault=fault)
        connection.load_scripts()
        self.lanes = {
            name: Lane(name, publisher, config.worker) for name, publisher in publishers.items()
        }
        self._pools = {name: self._pool(name) for name in self.lanes}
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
        registry = Registry(self._connection, self._config.store.namespace)
        routes = [route for route in self._config.routes.values() if route.target.broker == broker]
        stations = [station for route in routes for station in self._stations(registry, route)]
        pool = self._pools[broker]
        return Worker(self.lanes[broker], stations, Shunter(self.lanes, pool), pool)

    def _stations(self, registry: Registry, route: Route) -> list[Station]:
        gate = Gate()
        return [
            Station(route, self._store(route, number, 0.0), self._store(route, number, 0.5), gate)
            for number in range(registry.open_route(route.name, route.shards))
        ]

    def _store(self, route: Route, number: int, lease_share: float) -> DelayStore:
        return DelayStore(
            self._connection,
            Shard(self._config.store.namespace, route.name, number),
            has_dead_letter=route.dead_letter is not None,
            repeat_for_s=route.lease / 1000 * lease_share,
        )

    def _wake_calls(self) -> dict[Shard, "partial[None]"]:
        return {
            station.store.shard: partial(worker.wake, station)
            for worker in self.workers
            for station in worker.stations
        }

    def start(self) -> None:
        """Begin to work, in threads of its own."""
        self._listener.start()
        for thread in self._threads:
            thread.start()
        log.info("started", routes=len(self._config.routes), lanes=len(self.lanes))

    def drain(self) -> None:
        """Claim nothing more, settle what is under way within `worker.drain`, then close all.

        Against a healthy broker nothing is left in unack and nothing will be delivered twice.
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
