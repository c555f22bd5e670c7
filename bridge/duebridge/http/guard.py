"""Around every request: is its path readable? A line in the log, never with an id or a body."""

import time
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duebridge.http.access_log import OTHER, AccessLog
from duebridge.http.problems import ProblemError


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
