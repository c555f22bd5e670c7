"""Assembles a worker process: its loops, and a lane per broker; starts, swaps and drains it."""

import secrets
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial

import structlog

from duebridge.config.models import Config, Route
from duebridge.errors import BridgeError, StoreUnavailable
from duebridge.ports.publisher import Publisher
from duebridge.store.keys import Shard
from duebridge.store.registry import Registry
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import REPEAT_FOR_S, Connection
from duebridge.store.wakeup import WakeListener
from duebridge.store.wire.poll import Poll
from duebridge.store.workers import Workers
from duebridge.telemetry import metrics
from duebridge.telemetry.tracing import Tracing
from duebridge.worker.drain import drain
from duebridge.worker.lanes.daemon_executor import DaemonExecutor
from duebridge.worker.lanes.lane import Lane, thread_count
from duebridge.worker.orphans import Orphans
from duebridge.worker.reload import (
    Changes,
    SwapRefused,
    changes_between,
    check_new_needs,
    check_store,
    fixed_at_start,
    left_behind,
    other_shards,
)
from duebridge.worker.shard import ShardView
from duebridge.worker.worker import Worker

OPEN_WITHIN_S = 5.0  # a route, in a swap
LANE_SETTLERS = 3  # threads: one may ping, the others settle what is not published

log = structlog.get_logger()


class Runner:
    """A worker process: delivers the envelopes of every route from `start` until `drain`."""

    def __init__(
        self,
        config: Config,
        connection: Connection,
        publishers: Mapping[str, Publisher],
        *,
        exports_gauges: bool = False,
        tracing: Tracing | None = None,
    ) -> None:
        """Check the store and open the routes in it; raises `StoreUnfit` or `StoreUnavailable`.

        `exports_gauges` also collects the statistics that only gauges need.
        """
        self._config = config
        self._connection = connection
        self._exporter = secrets.token_hex(8) if exports_gauges else ""
        check_store(connection, config, REPEAT_FOR_S)
        connection.load_scripts(REPEAT_FOR_S)
        self.lanes = {name: self._lane(name, each) for name, each in publishers.items()}
        self._registry = Registry(connection, config.store.namespace)
        self._views = {name: self._open(route) for name, route in config.routes.items()}
        self._openers = DaemonExecutor(1, "open")
        self.worker = Worker(self.lanes, self.views(), tracing=tracing, node_of=self._node_of)
        self._listener = WakeListener(connection, self._wake_calls())
        self._orphans = Orphans(self.worker, Workers(connection, config.store.namespace))

    def _lane(self, name: str, publisher: Publisher) -> Lane:
        settings = self._config.worker
        threads = DaemonExecutor(thread_count(settings), f"lane-{name}")
        settlers = DaemonExecutor(LANE_SETTLERS, f"settle-{name}")
        return Lane(name, publisher, settings, threads, settlers)

    def _open(self, route: Route) -> list[ShardView]:
        metrics.begin(route.name)
        stores = RouteStore.open(
            self._connection,
            self._config.store.namespace,
            route,
            settle_for_s=route.lease / 1000 / 2,
        )
        return [ShardView(route, store, exporter=self._exporter) for store in stores.shards]

    def _open_soon(self, route: Route) -> list[ShardView]:
        """Open a route of a new configuration; raises `StoreUnavailable` if that takes long.

        A start waits for the store; a swap must not, since its thread also waits for the stop.
        """
        opening = self._openers.submit(self._attempt, route)
        try:
            opened: list[ShardView] | BridgeError = opening.result(OPEN_WITHIN_S)
        except TimeoutError:
            opening.cancel()
            raise StoreUnavailable(f"route {route.name}: the store did not open it") from None
        if isinstance(opened, BridgeError):
            raise opened
        return opened

    def _attempt(self, route: Route) -> list[ShardView] | BridgeError:
        """Return the error instead of raising it, since its thread would log it as a fault."""
        try:
            return self._open(route)
        except BridgeError as error:
            return error

    def _node_of(self, shard: Shard) -> str:
        return self._connection.node_of(shard.wake)

    def _wake_calls(self) -> dict[Shard, "partial[None]"]:
        return {view.store.shard: partial(self.worker.wake, view) for view in self.views()}

    def start(self) -> None:
        """Start delivering."""
        self._listener.start()
        self.worker.start()
        self._orphans.start()
        log.info("started", routes=len(self._config.routes), lanes=len(self.lanes))

    @property
    def is_alive(self) -> bool:
        """Whether the loops still run, as they must until the drain."""
        return self.worker.is_alive

    @property
    def config(self) -> Config:
        """The configuration in effect."""
        return self._config

    def views(self) -> list[ShardView]:
        """Return all shards that this process currently serves."""
        return [view for views in self._views.values() for view in views]

    def swap(self, config: Config, prepare: Callable[[Config], None] = lambda _: None) -> Changes:
        """Apply the routes of another configuration: all of them, or none if it raises.

        `prepare` is called with a configuration that may be applied, before that; it may raise too.
        Workers switch between two turns; batches in flight are settled with their old settings.
        Unchanged routes are not interrupted. Raises `SwapRefused` and `StoreError`.
        """
        self._refuse_unless_swappable(config)
        prepare(config)
        changes = changes_between(self._config, config)
        routes = {name: config.routes[name] for name in (*changes.added, *changes.changed)}
        views = self._views | {name: self._open_soon(route) for name, route in routes.items()}
        self._views = {name: views[name] for name in config.routes}
        self._config = config
        if any(changes):
            self.worker.swap(self.views())
            self._listener.listen_for(self._wake_calls())
        return changes

    def _refuse_unless_swappable(self, config: Config) -> None:
        if reasons := fixed_at_start(self._config, config, self.lanes):
            raise SwapRefused(reasons, may_pass=False)
        check_new_needs(self._connection, self._config, config)
        registered = self._registry.shards()
        holding = self._absent(config, registered, must_answer=self._config.routes)
        if reasons := other_shards(config, registered) + left_behind(holding):
            raise SwapRefused(reasons, may_pass=True)

    def absent(self) -> dict[str, int]:
        """Count stored envelopes by route, for routes neither configured nor in `allow_absent`.

        0: only the route's cold tier may have some.
        """
        registered = self._registry.shards()
        return self._absent(self._config, registered, must_answer=registered)

    def _absent(
        self, config: Config, registered: Mapping[str, int], *, must_answer: Collection[str]
    ) -> dict[str, int]:
        """Leave out a route that does not answer, unless it must: the monitor asks again."""
        names = sorted(registered.keys() - config.routes.keys() - set(config.allow_absent))
        polls: dict[str, list[Poll]] = {}
        for name in names:
            with suppress(*() if name in must_answer else (StoreUnavailable,)):
                polls[name] = self._polls(name, registered[name])
        return {
            name: sum(poll.envelopes for poll in found)
            for name, found in polls.items()
            if any(poll.envelopes or poll.has_cold for poll in found)
        }

    def _polls(self, route: str, shards: int) -> list[Poll]:
        stores = RouteStore(self._connection, self._config.store.namespace, route, shards)
        return [store.next() for store in stores.shards]

    def drain(self, began: float | None = None) -> bool:
        """Stop claiming, settle batches in flight within `worker.drain`, then close everything.

        `began` is when the process began to stop, if not now, by the monotonic clock.

        With a healthy broker, unack is empty afterwards and nothing is delivered twice. Ends within
        `drain + publish_deadline + 2 s`, whatever store and brokers do; False: something still
        hangs, and the process must be ended without waiting for it.
        """
        self._orphans.close()
        self._openers.shutdown()
        return drain(
            self.worker,
            self.lanes.values(),
            self.views(),
            self._config.worker,
            self._listener.close,
            self._connection.close,
            time.monotonic() if began is None else began,
        )
