"""The server's protocol: limits on connections, and on what of a request is no body."""

import asyncio
from http import HTTPStatus
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from duebridge.http.access_log import AccessLog, Guard
from duebridge.http.connection.parting import PartingTransport
from duebridge.http.connection.plain import PlainProtocol
from duebridge.http.problems import ProblemError

HEAD_BYTES = 32 * 1024
HEAD_WITHIN_S = 10.0
REST_WITHIN_S = 10.0  # of a body whose request is answered already
AGAIN_S = 1
LEFT_AFTER_S = 0.1  # who only ends its side does so with the request; later it gave up
LIVEZ = "/livez"
CLOSE = {"Connection": "close"}


class HeadTooLarge(Exception):
    """A request's line and headers, or its trailer, are longer than `HEAD_BYTES`."""


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


class GuardedProtocol(PlainProtocol):
    """Bounds what a client may keep of the server: connections, bytes and time.

    It changes this in uvicorn's protocol:

    - A head or a trailer that is too long is answered 431, and a head that is slow not at all.
    - A connection beyond the limit is turned away, and those before it are served; uvicorn's own
      limit refuses all of them then.
    - Whatever comes, a connection without a request in hand has a timer; uvicorn stops its timer
      at any byte.
    - A client that reads nothing for `read_within_s` loses its connection, but not while it sends a
      body of which the answer has begun: who answers so bounds what waits (endpoints/outlet.py).
    - The rest of a body whose answer was early is read for a while, and left out.
    - A client that has ended its side gets the answers to what it sent whole. One that does so
      while it waits has left, as a client does whose patience is over: `has_left` of the state.
    """

    transport: PartingTransport  # type: ignore[assignment]

    def __init__(
        self, *args: Any, read_within_s: float, access_log: AccessLog, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._access_log = access_log
        self._read_within_s = read_within_s
        self._apart_bytes = 0  # since the latest head, part of a body or message ended
        self._is_head_coming = False
        self._is_body_coming = False
        self._is_too_large = False
        self._is_refused = False
        self._has_left = False
        self._whole_at = 0.0  # when the latest request had come, or the answer before it had gone
        self._most_connections, self.limit_concurrency = self.limit_concurrency, None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        within_s = self._read_within_s
        self.transport = PartingTransport(transport, self.loop, self._is_stuck, within_s)
        if self._most_connections is not None and len(self.connections) > self._most_connections:
            self.app = Guard(turn_away, self._access_log)
        self._wait(HEAD_WITHIN_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._has_left = True
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self.transport.stop_waiting()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a head or a body; a connection that ends takes none."""
        if self._is_refused or self.transport.is_closing():
            return
        self._apart_bytes += len(data)
        super().data_received(data)
        if self._apart_bytes > HEAD_BYTES and not self._is_refused:
            self._is_too_large = True
            self.send_400_response("")
        elif self._is_head_coming and self.timeout_keep_alive_task is None:
            self._wait_for_rest()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer what came whole: the client, which sends nothing more, may still read."""
        self.transport.is_heard = True
        if not self._is_body_coming and self.loop.time() - self._whole_at > LEFT_AFTER_S:
            self._has_left = True
        if not self._end_after_answers():
            self.transport.close()
        return True

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        if not self.transport.is_closing():
            self.transport.await_reader(self._is_both_ways)

    def resume_writing(self) -> None:
        """Write on."""
        super().resume_writing()
        if not self.transport.is_closing():
            self.transport.stop_waiting()

    def has_left(self) -> bool:
        """Whether nobody is there to read an answer, as far as can be told."""
        return self._has_left

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._is_head_coming = True
        self.scope["state"]["has_left"] = self.has_left
        self._unset_keepalive_if_required()

    def on_headers_complete(self) -> None:
        """End a head; raises `HeadTooLarge`, which the parser passes on as its own error."""
        self._end_part()
        self._unset_keepalive_if_required()
        self._is_head_coming = False
        super().on_headers_complete()
        self._is_body_coming = not self.has_offer()
        self.transport.is_heard = not self._is_body_coming

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._apart_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request, and perhaps a trailer; raises `HeadTooLarge`."""
        if self.has_offer():
            return
        self._end_part()
        super().on_message_complete()
        self._is_body_coming = False
        self._whole_at = self.loop.time()
        self.transport.is_heard = True
        if self.cycle.response_complete:
            self._wait(self.timeout_keep_alive)

    def on_response_complete(self) -> None:
        """Go on with the next request that has come, or wait for it."""
        self._whole_at = self.loop.time()  # until now the next request may not have been read
        if self.pipeline and self.pipeline[-1][0].disconnected:
            self.transport.close()
        super().on_response_complete()
        if not self.transport.is_closing():
            self._wait_for_rest()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's
        """Refuse what comes, and all behind it, with a problem: 431 where it is too long.

        There is none where an answer to this request has begun, nor behind answers to others.
        """
        self._is_refused = True
        is_begun = self._is_body_coming and self.cycle.response_started
        if self._end_after_answers():
            return
        if not is_begun:
            self._refuse()
        self.transport.is_heard = False
        self.transport.close()

    def _refuse(self) -> None:
        refusal = self._refusal()
        self.transport.write(written(refusal))
        if not self._is_body_coming:  # else the application had the head, and is disconnected
            self._access_log.add(refusal.status)

    def _refusal(self) -> ProblemError:
        status, expected = HTTPStatus.BAD_REQUEST, "a request of HTTP/1.1"
        if self._is_too_large:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            expected = f"a head of at most {HEAD_BYTES} bytes"
        detail = f"request: expected {expected}; got another"
        return ProblemError(status, status.phrase, detail, CLOSE)

    def _end_part(self) -> None:
        """End a head or a trailer, whose fields `headers` has."""
        self._apart_bytes = 0
        if sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES:
            self._is_too_large = True
            raise HeadTooLarge

    def _end_after_answers(self) -> bool:
        """Close behind the answers to whole requests; returns whether there are any to come."""
        if self._is_body_coming:  # of the latest request, which nothing will complete
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            return bool(self.pipeline)
        if not self._is_in_hand():
            return False
        self.cycle.keep_alive = False
        return True

    def _is_in_hand(self) -> bool:
        cycle = self.cycle  # none at first
        return bool(cycle) and not cycle.response_complete

    def _is_both_ways(self) -> bool:
        return self._is_body_coming and self._is_in_hand() and self.cycle.response_started

    def _is_stuck(self) -> bool:
        return self._is_in_hand() and self.flow.write_paused

    def _wait_for_rest(self) -> None:
        """Wait for the rest of a head, or of a body that is answered; others the app sees to."""
        if not self._is_in_hand() and (self._is_head_coming or self._is_body_coming):
            self._wait(HEAD_WITHIN_S if self._is_head_coming else REST_WITHIN_S)

    def _wait(self, seconds: float) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )
