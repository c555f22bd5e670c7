"""The server's protocol: limits on connections, and on a request's head in bytes and time."""

import asyncio
from http import HTTPStatus
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from duebridge.http.joined import JoinedTransport
from duebridge.http.problems import ProblemError

HEAD_BYTES = 32 * 1024
HEAD_WITHIN_S = 10.0
AGAIN_S = 1


class HeadTooLarge(Exception):
    """A request's line and headers are longer than `HEAD_BYTES`."""


async def turn_away(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request of a connection that is beyond the limit: the next try may find room."""
    again = {"Retry-After": str(AGAIN_S), "Connection": "close"}
    full = ProblemError(503, "Too many connections", "the server has all it may; come again", again)
    await full.response()(scope, receive, send)


class GuardedProtocol(HttpToolsProtocol):
    """Ends a connection whose client is slow with a head, and answers 431 to one too long.

    A connection beyond the limit is turned away; those before it are served. uvicorn's own limit
    refuses all of them then.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes: int | None = 0  # None: the head is whole
        self._is_too_large = False
        self._most_connections, self.limit_concurrency = self.limit_concurrency, None
        self._slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self.transport = JoinedTransport(transport, self.loop)  # type: ignore[assignment]
        if self._most_connections is not None and len(self.connections) > self._most_connections:
            self.app = turn_away
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a head or a body."""
        if self._head_bytes is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None:
            self._check_head(self._head_bytes)

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._stop_waiting()
        if self._head_bytes is None:
            self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """End a head; raises `HeadTooLarge`, which the parser passes on as its own error."""
        self._stop_waiting()
        self._head_bytes = None
        if sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES:
            self._is_too_large = True
            raise HeadTooLarge
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse the connection: 431 where the head is too long."""
        if not self._is_too_large:
            super().send_400_response(msg)
            return
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        self.transport.write(f"{head}content-length: 0\r\nconnection: close\r\n\r\n".encode())
        self.transport.close()

    def _check_head(self, size: int) -> None:
        """Refuse a head that is too long; wait for the rest of another."""
        if size > HEAD_BYTES:
            self._is_too_large = True
            if not self.transport.is_closing():
                self.send_400_response("")
        elif self._slow is None:
            self._expect_head()

    def _expect_head(self) -> None:
        self._slow = self.loop.call_later(HEAD_WITHIN_S, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
