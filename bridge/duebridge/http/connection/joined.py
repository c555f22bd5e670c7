"""Joins what a server writes in one turn of its loop into one call of the kernel.

uvicorn writes the head of an answer and its body apart, and each would be a packet of its own.
"""

import asyncio
from typing import Any


class JoinedTransport:
    """A transport whose writes leave together, at the end of the turn; else as the one beneath."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Write with what else this turn writes."""
        if not self._parts:
            self._loop.call_soon(self._leave)
        self._parts.append(data)

    def close(self) -> None:
        """Close once all is written."""
        self._leave()
        self._transport.close()

    def _leave(self) -> None:
        whole, self._parts = b"".join(self._parts), []
        if whole and not self._transport.is_closing():
            self._transport.write(whole)

    def __getattr__(self, name: str) -> Any:
        """Return what else a transport has."""
        return getattr(self._transport, name)
