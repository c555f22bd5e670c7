"""A TCP proxy before each server, in one thread: it tells servers of the set from their clients.

Each server connects from an address of its own (`bind-source-addr`), Sentinels from `SENTINELS`,
clients from `CLIENTS`. So replication can lag, or be cut, while clients still reach the server.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

CLIENTS, SENTINELS = "127.0.0.1", "127.0.0.2"
LAG_S = 0.05  # of every replica: on a plain loopback nothing is ever lost
CHUNK_BYTES = 65536
CALL_WITHIN_S = 10.0

T = TypeVar("T")


class Wires:
    """The thread that all links run in."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._links: list[Link] = []
        self.lags_s: dict[str, float] = {}  # by the address of a replica that is further behind
        self._thread = threading.Thread(target=self._loop.run_forever, name="wires", daemon=True)
        self._thread.start()

    def address(self) -> str:
        """Return an address of this machine that no other server of the set has."""
        return f"127.0.0.{3 + len(self._links)}"

    def link(self, port: int) -> "Link":
        """Return a link to a port of this machine."""
        link = Link(self, port)
        link.port = self.call(link.listen())
        self._links.append(link)
        return link

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the loop's thread, and return what it returned."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_WITHIN_S)

    def close(self) -> None:
        for link in self._links:
            self.call(link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Link:
    """A way to a server; what it tells its replicas is on its way for a while."""

    port: int

    def __init__(self, wires: Wires, server_port: int) -> None:
        self.wires = wires
        self._server_port = server_port
        self._pumps: dict[asyncio.Task[None], bool] = {}  # and whether it is a peer's
        self._is_whole = asyncio.Event()
        self._is_whole.set()

    def cut(self) -> None:
        """End every connection at once; what is on its way is gone."""
        self.wires.call(self._end())

    def part(self) -> None:
        """Let nothing of peers through and close nothing, until `heal`."""
        self.wires.call(self._part())

    def heal(self) -> None:
        """Let peers through again, by new connections; what was held back is gone."""
        self.wires.call(self._heal())

    async def listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        await self._end()

    async def _part(self) -> None:
        self._is_whole.clear()

    async def _heal(self) -> None:
        await self._end(of_peers=True)
        self._is_whole.set()

    async def _end(self, *, of_peers: bool = False) -> None:
        pumps = [pump for pump, is_peer in self._pumps.items() if is_peer or not of_peers]
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("peername")[0]
        is_peer = address != CLIENTS
        try:
            back = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:  # the server is down: so are we
            writer.transport.abort()
            return
        pumps = [
            asyncio.create_task(self._pump(reader, back[1], address, is_late=False)),
            asyncio.create_task(self._pump(back[0], writer, address, is_late=is_peer)),
        ]
        self._pumps |= dict.fromkeys(pumps, is_peer)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
            del self._pumps[pump]
        for each in (writer, back[1]):
            each.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        address: str,
        *,
        is_late: bool,
    ) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                if is_late:
                    await asyncio.sleep(self.wires.lags_s.get(address, LAG_S))
                if address != CLIENTS:
                    await self._is_whole.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            return
