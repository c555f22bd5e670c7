"""The server's protocol: limits on connections, and on a request's head in bytes and time."""

import asyncio
from http import HTTPStatus
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from duebridge.http.joined import JoinedTransport
from duebridge.http.problems import ProblemError

HEAD_BYTES = 32 * 1024
HEAD_WITHIN_S = 10.0
AGAIN_S = 1
LIVEZ = "/livez"
CLOSE = {"Connection": "close"}


class HeadTooLarge(Exception):
    """A request's line and headers are longer than `HEAD_BYTES`."""


async def turn_away(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request of a connection that is beyond the limit: the next try may find room.

    A full server lives: were `/livez` refused, a restart would end the connections it serves.
    """
    if scope["path"] == LIVEZ:
        return await PlainTextResponse("ok", headers=CLOSE)(scope, receive, send)
    again = {"Retry-After": str(AGAIN_S), **CLOSE}
    full = ProblemError(503, "Too many connections", "the server has all it may; come again", again)
    return await full.response()(scope, receive, send)


def written(refusal: ProblemError) -> bytes:
    """Return a refusal as it is sent to a client whose request no application gets to see."""
    status, response = HTTPStatus(refusal.status), refusal.response()
    head = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
    line = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    return line + head + b"\r\n" + bytes(response.body)


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

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's
        """Refuse the connection with a problem: 431 where the head is too long."""
        status, expected = HTTPStatus.BAD_REQUEST, "a request of HTTP/1.1"
        if self._is_too_large:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            expected = f"a head of at most {HEAD_BYTES} bytes"
        detail = f"request: expected {expected}; got another"
        self.transport.write(written(ProblemError(status, status.phrase, detail, CLOSE)))
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
