"""Links that can be broken, in one thread.

link.cut()           end every connection       link.hole()    nothing passes, nothing is closed
link.cut(by_reset=True)                        link.slow(s)   every chunk waits so long
link.throttle(n)     n bytes of requests a second, of all connections together
link.drop_replies(n) forward the request, drop its reply and the connection
link.heal()          pass everything again; what a hole held back goes on
"""

import asyncio
import socket
import struct
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from tests.support.network.relays import CHUNK_BYTES, Pipe, Relay, RelayThread

PIECES_PER_S = 20  # of a throttled link
LINGER_0 = struct.pack("ii", 1, 0)


class Link(Relay):
    """A way to a server; the counters tell what was really broken."""

    def __init__(self, thread: RelayThread, server_port: int) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._slow_s, self._to_lose = 0.0, 0
        self._bytes_per_s, self._free_at = 0, 0.0
        self._loses: Callable[[bytes], bool] = bool
        self.held_bytes = self.slowed = self.lost_replies = 0
        self.connected_at: list[float] = []  # monotonic, of every attempt, also of failed ones
        super().__init__(thread, server_port)

    def cut(self, *, by_reset: bool = False) -> int:
        """End every connection in order, or by RST; returns how many there were."""
        return self._thread.call(self._cut(by_reset=by_reset))

    def hole(self) -> None:
        """Let nothing through and close nothing, until `heal`."""
        self._thread.call(self._set(is_open=False))

    def slow(self, seconds: float) -> None:
        """Keep every chunk back for so long."""
        self._thread.call(self._set(slow_s=seconds))

    def throttle(self, bytes_per_s: int) -> None:
        """Let so many bytes of requests through in a second."""
        self._thread.call(self._set(bytes_per_s=bytes_per_s))

    def drop_replies(self, times: int, to: Callable[[bytes], bool] = bool) -> None:
        """Lose the replies to the next requests that `to` is true of, one a connection."""
        self._thread.call(self._set(to_lose=times, loses=to))

    def heal(self) -> None:
        self._thread.call(self._set())

    async def _set(
        self,
        *,
        is_open: bool = True,
        slow_s: float = 0.0,
        bytes_per_s: int = 0,
        to_lose: int = 0,
        loses: Callable[[bytes], bool] = bool,
    ) -> None:
        self._slow_s, self._to_lose, self._loses = slow_s, to_lose, loses
        self._bytes_per_s = bytes_per_s
        (self._open.set if is_open else self._open.clear)()

    async def _cut(self, *, by_reset: bool) -> int:
        pipes = list(self._pipes)
        for pipe in pipes if by_reset else ():
            _reset_at_the_end(pipe.to_client)
            _reset_at_the_end(pipe.to_server)
        await self.end(pipes)
        return len(pipes)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connected_at.append(time.monotonic())
        await super().serve(reader, writer)

    def pumps(self, pipe: Pipe) -> Iterable[Coroutine[Any, Any, None]]:
        loses_reply = asyncio.Event()  # the next one, of this connection
        yield self._requests(pipe.from_client, pipe.to_server, loses_reply)
        yield self._replies(pipe.from_server, pipe.to_client, loses_reply)

    async def _requests(
        self, reader: StreamReader, writer: StreamWriter, loses_reply: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(self._bytes_per_s // PIECES_PER_S or CHUNK_BYTES):
                await self._obstruct(data)
                await self._wait_for_room(len(data))
                if self._to_lose and not loses_reply.is_set() and self._loses(data):
                    self._to_lose -= 1
                    loses_reply.set()
                writer.write(data)
                await writer.drain()

    async def _replies(
        self, reader: StreamReader, writer: StreamWriter, loses_reply: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._obstruct(data)
                if loses_reply.is_set():
                    self.lost_replies += 1
                    return
                writer.write(data)
                await writer.drain()

    async def _obstruct(self, data: bytes) -> None:
        if not self._open.is_set():
            self.held_bytes += len(data)
            await self._open.wait()
        if self._slow_s:
            self.slowed += 1
            await asyncio.sleep(self._slow_s)

    async def _wait_for_room(self, size: int) -> None:
        if self._bytes_per_s:
            self.slowed += 1
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / self._bytes_per_s
            await asyncio.sleep(self._free_at - now)


def _reset_at_the_end(writer: StreamWriter) -> None:
    """Let the connection end by RST."""
    if (sock := writer.get_extra_info("socket")) is not None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
