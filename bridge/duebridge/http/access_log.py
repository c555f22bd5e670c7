"""The log of requests: a line each, written many at once, since a write costs as much as a post."""

import asyncio
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

WRITE_EVERY_S = 0.1

log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class AccessLog:
    """Writes to standard error what a request was, in the form of all other lines of the process.

    A person at a terminal sees it at once; JSON is written within `WRITE_EVERY_S`, and by `flush`.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._lines: list[bytes] = []

    def add(self, **fields: Any) -> None:
        """Log a request; called on the event loop."""
        if self._is_terminal:
            log.info("http", **fields)
            return
        if not self._lines:
            asyncio.get_running_loop().call_later(WRITE_EVERY_S, self.flush)
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        self._lines.append(_encode({**fields, "event": "http", "level": "info", "timestamp": now}))

    def flush(self) -> None:
        """Write what is left."""
        if self._lines:
            whole, self._lines = b"\n".join(self._lines), []
            print(whole.decode(), file=sys.stderr, flush=True)  # noqa: T201 - as structlog does
