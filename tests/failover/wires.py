"""A link before each server: it tells servers of the set from their clients.

Each server connects from an address of its own (`bind-source-addr`), Sentinels from `SENTINELS`,
clients from `CLIENTS`. So replication can lag, or be cut, while clients still reach the server.
"""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any

from tests.support.network.relays import CHUNK_BYTES, Pipe, Relay, RelayThread

CLIENTS, SENTINELS = "127.0.0.1", "127.0.0.2"
LAG_S = 0.05  # of every replica: on a plain loopback nothing is ever lost


class Wires(RelayThread):
    """The thread that all links run in."""

    def __init__(self) -> None:
        super().__init__()
        self.lags_s: dict[str, float] = {}  # by the address of a replica that is further behind

    def address(self) -> str:
        """Return an address of this machine that no other server of the set has."""
        return f"127.0.0.{3 + len(self._relays)}"

    def link(self, port: int) -> "Link":
        """Return a link to a port of this machine."""
        return Link(self, port)


class Link(Relay):
    """A way to a server; what it tells its replicas is on its way for a while."""

    def __init__(self, wires: Wires, server_port: int) -> None:
        self.wires = wires
        self._is_whole = asyncio.Event()
        self._is_whole.set()
        super().__init__(wires, server_port)

    def cut(self) -> None:
        """End every connection at once; what is on its way is gone."""
        self.wires.call(self._cut())

    def part(self) -> None:
        """Let nothing of peers through and close nothing, until `heal`."""
        self.wires.call(self._part())

    def heal(self) -> None:
        """Let peers through again, by new connections; what was held back is gone."""
        self.wires.call(self._heal())

    async def _cut(self) -> None:
        await self.end(list(self._pipes))

    async def _part(self) -> None:
        self._is_whole.clear()

    async def _heal(self) -> None:
        await self.end([pipe for pipe in self._pipes if pipe.address != CLIENTS])
        self._is_whole.set()

    def pumps(self, pipe: Pipe) -> Iterable[Coroutine[Any, Any, None]]:
        is_late = pipe.address != CLIENTS
        yield self._pump(pipe.from_client, pipe.to_server, pipe.address, is_late=False)
        yield self._pump(pipe.from_server, pipe.to_client, pipe.address, is_late=is_late)

    async def _pump(
        self, reader: StreamReader, writer: StreamWriter, address: str, *, is_late: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if is_late:
                    await asyncio.sleep(self.wires.lags_s.get(address, LAG_S))
                if address != CLIENTS:
                    await self._is_whole.wait()
                writer.write(data)
                await writer.drain()
