"""TCP relays before servers of this machine, in one thread; each kind says what it lets through.

`proxy.py` is the plain one: a thread a connection, and faults that most tests need.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from asyncio import StreamReader, StreamWriter
from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

CHUNK_BYTES = 65536
CALL_WITHIN_S = 10.0

T = TypeVar("T")


class RelayThread:
    """The thread that all relays run in."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._relays: list[Relay] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the loop's thread, and return what it returned."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_WITHIN_S)

    def add(self, relay: "Relay") -> int:
        """Let a relay listen until `close`; return its port."""
        port = self.call(relay.listen())
        self._relays.append(relay)
        return port

    def close(self) -> None:
        for relay in self._relays:
            self.call(relay.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Pipe(NamedTuple):
    """A connection: the client's end and the server's."""

    from_client: StreamReader
    to_client: StreamWriter
    from_server: StreamReader
    to_server: StreamWriter

    @property
    def address(self) -> str:
        """The address that the client came from."""
        return str(self.to_client.get_extra_info("peername")[0])


class Relay(ABC):
    """A way to a server."""

    def __init__(self, thread: RelayThread, server_port: int) -> None:
        self._thread, self._server_port = thread, server_port
        self._pipes: dict[Pipe, list[asyncio.Task[None]]] = {}  # and what moves their bytes
        self.port = thread.add(self)  # from here on it serves

    @abstractmethod
    def pumps(self, pipe: Pipe) -> Iterable[Coroutine[Any, Any, None]]:
        """Return what moves the bytes of a connection, each way; it ends with the first of them."""

    async def listen(self) -> int:
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        await self.end(list(self._pipes))

    async def end(self, pipes: Iterable[Pipe]) -> None:
        """End these connections at once; what is on its way is gone."""
        pumps = [pump for pipe in pipes for pump in self._pipes[pipe]]
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            back = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:  # the server is down: so are we
            writer.transport.abort()
            return
        pipe = Pipe(reader, writer, *back)
        pumps = [asyncio.create_task(each) for each in self.pumps(pipe)]
        self._pipes[pipe] = pumps
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        del self._pipes[pipe]
        for each in (pipe.to_client, pipe.to_server):
            each.transport.abort()
