"""Ends a connection so that its client sees the last answer, and within a time."""

import asyncio
from collections.abc import Callable

from duebridge.http.connection.joined import JoinedTransport

LINGER_S = 5.0  # for a client that still sends
READ_WITHIN_S = 30.0  # what was written


class PartingTransport(JoinedTransport):
    """A joined transport whose `close` has an end: what takes too long is aborted.

    A socket that is closed while bytes arrive resets its connection, and the client may lose the
    answer. So where its request is still coming (`is_heard`), `close` only ends the answer; what
    comes is left out, until the client closes too. `is_stuck` says whether the answer is cut short
    for a client that does not read it: then there is nothing to wait for.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        is_stuck: Callable[[], bool],
    ) -> None:
        super().__init__(transport, loop)
        self.is_heard = True
        self._is_stuck = is_stuck
        self._end: asyncio.TimerHandle | None = None

    def write(self, data: bytes) -> None:
        """Write with what else this turn writes, but nothing behind the end."""
        if self._end is None:
            super().write(data)

    def close(self) -> None:
        """End the answer, or the second time the connection, once all is written."""
        if self._is_stuck():
            self._transport.abort()
        elif self._end is None and not self.is_heard and not self._transport.is_closing():
            self._leave()
            self._abort_after(LINGER_S)
            self._transport.write_eof()
            self._transport.resume_reading()
        else:
            super().close()
            self._abort_after(READ_WITHIN_S)

    def is_closing(self) -> bool:
        """Whether it ends: nothing more is read or written."""
        return self._end is not None or self._transport.is_closing()

    def lost(self) -> None:
        """Wait for nothing: the connection is gone."""
        if self._end is not None:
            self._end.cancel()

    def _abort_after(self, seconds: float) -> None:
        self.lost()
        self._end = self._loop.call_later(seconds, self._transport.abort)
