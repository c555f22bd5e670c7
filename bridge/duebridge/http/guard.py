"""Around every request: is its path readable? A line in the log, never with an id or a body."""

import time
from functools import cache
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duebridge.http.access_log import AccessLog
from duebridge.http.problems import ProblemError
from duebridge.telemetry.metrics import http_requests

OTHER = "other"  # the path of what is none of the interface's
_counter = cache(http_requests.labels)  # whose look-up takes a lock


class Guard:
    """Lets requests through to the application."""

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
            path = state.get("path", OTHER)
            _counter(scope["method"] if path != OTHER else OTHER, path, status).inc()
            self._log.add(
                method=scope["method"],
                path=path,
                status=status,
                took_ms=round(1000 * (time.monotonic() - began), 1),
                token=state.get("token", ""),
            )
        return None


def _is_readable(scope: Scope) -> bool:
    raw: bytes = scope.get("raw_path") or b""
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return False
    return True
