"""Links that can be broken: an asyncio TCP proxy, one thread for all of them.

link.cut()           end every connection       link.hole()    nothing passes, nothing is closed
link.cut(by_reset=True)                        link.slow(s)   every chunk waits so long
link.throttle(n)     n bytes of requests a second, of all connections together
link.drop_replies(n) forward the request, drop its reply and the connection
link.heal()          pass everything again; what a hole held back goes on
"""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar

CHUNK_BYTES = 65536
CALL_WITHIN_S = 10.0
PIECES_PER_S = 20  # of a throttled link
LINGER_0 = struct.pack("ii", 1, 0)

T = TypeVar("T")


class Wires:
    """The thread that all links run in."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wires", daemon=True)
        self._thread.start()

    def link(self, port: int) -> "Link":
        """Return a link to a port of this machine."""
        link = Link(self, port)
        link.port = self.call(link.listen())
        return link

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the loop's thread, and return what it returned."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_WITHIN_S)

    def close(self, links: Iterable["Link"]) -> None:
        for link in links:
            self.call(link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Pipe:
    """One connection: its two ends, and whether its next reply is to be lost."""

    def __init__(self, *ends: asyncio.StreamWriter) -> None:
        self.ends = ends
        self.loses_reply = False

    def end(self, *, by_reset: bool = False) -> None:
        for writer in self.ends:
            sock = writer.get_extra_info("socket")
            if by_reset and sock is not None:
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
            writer.transport.abort()


class Link:
    """A way to a server; the counters tell what was really broken."""

    port: int

    def __init__(self, wires: Wires, server_port: int) -> None:
        self._wires = wires
        self._server_port = server_port
        self._pipes: set[_Pipe] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._slow_s, self._to_lose = 0.0, 0
        self._bytes_per_s, self._free_at = 0, 0.0
        self._loses: Callable[[bytes], bool] = bool
        self.held_bytes = self.slowed = self.lost_replies = 0
        self.connected_at: list[float] = []  # monotonic, of every attempt, also of failed ones

    def cut(self, *, by_reset: bool = False) -> int:
        """End every connection in order, or by RST; returns how many there were."""
        return self._wires.call(self._end_all(by_reset=by_reset))

    def hole(self) -> None:
        """Let nothing through and close nothing, until `heal`."""
        self._wires.call(self._set(is_open=False))

    def slow(self, seconds: float) -> None:
        """Keep every chunk back for so long."""
        self._wires.call(self._set(slow_s=seconds))

    def throttle(self, bytes_per_s: int) -> None:
        """Let so many bytes of requests through in a second."""
        self._wires.call(self._set(bytes_per_s=bytes_per_s))

    def drop_replies(self, times: int, to: Callable[[bytes], bool] = bool) -> None:
        """Lose the replies to the next requests that `to` is true of, one a connection."""
        self._wires.call(self._set(to_lose=times, loses=to))

    def heal(self) -> None:
        self._wires.call(self._set())

    async def listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        self._open.set()
        await self._end_all(by_reset=False)

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

    async def _end_all(self, *, by_reset: bool) -> int:
        pipes = list(self._pipes)
        for pipe in pipes:
            pipe.end(by_reset=by_reset)
        return len(pipes)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected_at.append(time.monotonic())
        try:
            back = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:  # the server is down: so are we
            writer.transport.abort()
            return
        pipe = _Pipe(writer, back[1])
        self._pipes.add(pipe)
        pumps = [
            asyncio.create_task(self._requests(reader, back[1], pipe)),
            asyncio.create_task(self._replies(back[0], writer, pipe)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        self._pipes.discard(pipe)
        pipe.end()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pipe: _Pipe
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(self._bytes_per_s // PIECES_PER_S or CHUNK_BYTES):
                await self._obstruct(data)
                await self._wait_for_room(len(data))
                if self._to_lose and not pipe.loses_reply and self._loses(data):
                    self._to_lose -= 1
                    pipe.loses_reply = True
                writer.write(data)
                await writer.drain()

    async def _replies(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pipe: _Pipe
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._obstruct(data)
                if pipe.loses_reply:
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
