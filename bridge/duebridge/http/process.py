"""The server process of `duebridge serve`: from its socket to its drain."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import structlog
import uvicorn
from prometheus_client import disable_created_metrics
from starlette.types import ASGIApp

from duebridge.config.serve import ListenAddress
from duebridge.errors import ConfigError
from duebridge.http.connection.guarded import GuardedProtocol
from duebridge.http.site import Site
from duebridge.runtime import listening

KEEP_ALIVE_S = 75  # longer than balancers keep an idle connection: they end it, not we
INTERRUPTED = 130

log = structlog.get_logger()


class Server(uvicorn.Server):
    """Serves until SIGTERM or SIGINT; a second signal ends the process at once.

    Then it takes no connection, answers the requests in hand, and ends streams after the lines
    that it has read.
    """

    def __init__(self, site: Site, app: ASGIApp) -> None:
        serve = site.config.serve
        protocol: Any = partial(
            GuardedProtocol,
            read_within_s=serve.request_timeout / 1000,
            access_log=site.access_log,
        )
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                loop="uvloop",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=serve.connections,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=-(-site.config.worker.drain // 1000),
            )
        )
        # As in a worker: no series beside each counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._site = site
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        host, port = (sockets or [])[0].getsockname()[:2]
        log.info("serving", host=host, port=port)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving; uvicorn would end the process by the signal itself."""
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's
        """Begin to drain."""
        if self.should_exit:
            os._exit(INTERRUPTED)
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._site.draining.set)


def listen(address: ListenAddress) -> socket.socket:
    """Return a socket that listens, at `::` to IPv4 too; raises `ConfigError` if it cannot."""
    try:
        return listening(address.host, address.port)
    except OSError as error:
        where = f"{address.host}:{address.port}"
        raise ConfigError(f"serve.listen: cannot listen on {where}: {error.strerror}") from error


def serve(site: Site, app: ASGIApp) -> None:
    """Serve an application until a signal, and drain; raises `ConfigError`."""
    with listen(site.config.serve.address) as listener:
        Server(site, app).run([listener])
    log.info("drained")
