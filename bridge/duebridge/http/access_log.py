"""The log and the count of requests, never with an id or a body, and what each passes through.

Lines are written many at once, as a write costs a post.
"""

import asyncio
import sys
import time
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duebridge.http.problems import ProblemError
from duebridge.telemetry.metrics import http_requests

OTHER = "other"  # the path of what is none of the interface's
WRITE_EVERY_S = 0.1

log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode
_counter = cache(http_requests.labels)  # whose look-up takes a lock


class AccessLog:
    """Counts each request, and writes a line of it in the form of all other lines of the process.

    A person at a terminal sees it at once; JSON is written within `WRITE_EVERY_S`, and by `flush`.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._lines: list[bytes] = []

    def add(
        self, status: int, method: str = "", path: str = OTHER, token: str = "", took_ms: float = 0
    ) -> None:
        """Count and log a request; called on the event loop.

        Of one that no application saw, the answer is all that is known.
        """
        _counter(method if path != OTHER else OTHER, path, status).inc()
        fields = {"method": method, "path": path, "status": status}
        self._write({**fields, "took_ms": took_ms, "token": token})

    def flush(self) -> None:
        """Write what is left."""
        if self._lines:
            whole, self._lines = b"\n".join(self._lines), []
            print(whole.decode(), file=sys.stderr, flush=True)  # noqa: T201 - as structlog does

    def _write(self, fields: dict[str, Any]) -> None:
        if self._is_terminal:
            log.info("http", **fields)
            return
        if not self._lines:
            asyncio.get_running_loop().call_later(WRITE_EVERY_S, self.flush)
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        self._lines.append(_encode({**fields, "event": "http", "level": "info", "timestamp": now}))


class Guard:
    """Lets requests with a readable path through to the application, and logs each."""

    def __init__(self, app: ASGIApp, access_log: AccessLog) -> None:
        self._app = app
        self._log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, status = time.monotonic(), 0
        state = scope.setdefault("state", {})

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if _is_readable(scope):
                await self._app(scope, receive, sent)
            else:
                detail = "path: expected percent-encoded UTF-8"
                await ProblemError(400, "Bad request", detail).response()(scope, receive, sent)
        except Exception:
            status = 500
            raise
        finally:
            self._log.add(
                status,
                method=scope["method"],
                path=state.get("path", OTHER),
                token=state.get("token", ""),
                took_ms=round(1000 * (time.monotonic() - began), 1),
            )
        return None


def _is_readable(scope: Scope) -> bool:
    raw: bytes = scope.get("raw_path") or b""
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return False
    return True
