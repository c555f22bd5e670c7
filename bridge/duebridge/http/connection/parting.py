"""The transport beneath a connection: joins its writes, and ends it within a time."""

import asyncio
from collections.abc import Callable
from typing import Any

LINGER_S = 5.0  # for a client that still sends


class JoinedTransport:
    """A transport whose writes leave together, at the end of the turn; else as the one beneath.

    uvicorn writes the head of an answer and its body apart, and each would be a packet of its own.
    """

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


class PartingTransport(JoinedTransport):
    """A joined transport whose `close` has an end: what takes too long is aborted.

    A socket that is closed while bytes arrive resets its connection, and the client may lose the
    answer. So where its request is still coming (`is_heard`), `close` only ends the answer; what
    comes is left out, until the client closes too. `is_stuck` says whether the answer is cut short
    for a client that does not read it: then there is nothing to wait for. `read_within_s` is how
    long a client may read nothing of what waits for it.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        is_stuck: Callable[[], bool],
        read_within_s: float,
    ) -> None:
        super().__init__(transport, loop)
        self.is_heard = True
        self._is_stuck = is_stuck
        self._read_within_s = read_within_s
        self._is_ending = False
        self._timer: asyncio.TimerHandle | None = None

    def write(self, data: bytes) -> None:
        """Write with what else this turn writes, but nothing behind the end."""
        if not self._is_ending:
            super().write(data)

    def close(self) -> None:
        """End the answer, or the second time the connection, once all is written."""
        if self._is_stuck():
            self._transport.abort()
        elif not (self._is_ending or self.is_heard or self._transport.is_closing()):
            self._leave()
            self._is_ending = True
            self._after(LINGER_S, self._transport.abort)
            self._transport.write_eof()
            self._transport.resume_reading()
        else:
            super().close()
            self._is_ending = True
            self.await_reader(lambda: False)

    def is_closing(self) -> bool:
        """Whether it ends: nothing more is read or written."""
        return self._is_ending or self._transport.is_closing()

    def await_reader(self, is_excused: Callable[[], bool]) -> None:
        """Abort the connection once its client has read nothing for too long, but for an excuse."""
        left = self._transport.get_write_buffer_size()

        def look() -> None:
            if is_excused() or self._transport.get_write_buffer_size() != left:
                self.await_reader(is_excused)
            else:
                self._transport.abort()

        self._after(self._read_within_s, look)

    def stop_waiting(self) -> None:
        """Wait for nothing: all is read, or the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self.stop_waiting()
        self._timer = self._loop.call_later(seconds, call)
