"""The configuration, store, tokens and threads that every request shares."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from duebridge.admin.operator import Operator
from duebridge.config.models import Config
from duebridge.errors import ConfigError
from duebridge.http.access_log import AccessLog
from duebridge.http.tokens import Token, TokenFile
from duebridge.receipt import Known
from duebridge.scheduling.route_scheduler import RouteScheduler, RouteSchedulers
from duebridge.store.caller import NodeThreads, abandoned_if, check_awaited, never, use_actor
from duebridge.store.server.connection import Connection
from duebridge.telemetry.tracing import Tracing

T = TypeVar("T")
log = structlog.get_logger()

THREADS = 16  # that wait at once for the store, on a Cluster for each node
REPEAT_FOR_S = 4.0  # while the store is away; then the client is told to come again


class Site:
    """The one service that a process offers; `serve` makes it and closes it."""

    def __init__(
        self,
        config: Config,
        connection: Connection,
        tokens: TokenFile,
        tracing: Tracing | None = None,
    ) -> None:
        self.config = config
        self.connection = connection
        self.tokens = tokens
        self.operator = Operator(config, connection)
        self.access_log = AccessLog()
        self.draining = asyncio.Event()
        """Set when the process is to stop: streams end after the lines in hand."""
        self._schedulers = RouteSchedulers(config, connection, REPEAT_FOR_S, tracing)
        self._threads = NodeThreads(THREADS, "http")

    def now_ms(self) -> int:
        """Return this machine's time; what is due goes by the store's."""
        return time.time_ns() // 1_000_000

    def scheduler(self, route: str) -> RouteScheduler:
        """Return the engine of a route, for `run` alone; raises `UnknownRoute`, `StoreError`."""
        return self._schedulers[route]

    def node_of(self, route: str, id_: str) -> str:
        """Return the Cluster's node of an id; empty on one server, and before the route's opening.

        What is called for the id alone runs in that node's threads: see `run`.
        """
        if not self.connection.is_cluster or route not in self._schedulers:
            return ""
        return self._schedulers[route].store.of(id_).node

    def cold(self, route: str, id_: str) -> Known | None:
        """Look an envelope up in the cold tier, for `run` alone, as `Operator.cold` does.

        Raises `ConfigError` if its files cannot be read, which is logged: the operator has to act.
        """
        try:
            return self.operator.cold(route, id_)
        except ConfigError as error:
            log.warning("cold_tier_unreadable", route=route, error=str(error))
            raise

    async def run(
        self,
        call: Callable[[], T],
        token: Token | None = None,
        has_left: Callable[[], bool] = never,
        node: str = "",
    ) -> T:
        """Run a call of the store in a thread of the node; raises as the call does.

        What it writes is journalled with the token's name. Where the client `has_left`, it is not
        begun, which raises `StoreUnavailable`, nor sent again; what was sent goes on to its end.
        """

        def acting() -> T:
            with use_actor("" if token is None else token.name), abandoned_if(has_left):
                check_awaited()
                return call()

        return await asyncio.wrap_future(self._threads.submit(acting, node))

    def close(self) -> None:
        """Wait for the calls that run, and write the rest of the log."""
        self._threads.shutdown()
        self.access_log.flush()
