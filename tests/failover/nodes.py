"""Servers of a set, each behind a link, so that its replication can lag or be cut.

A link tells servers of the set from their clients: each server connects from an address of its own
(`bind-source-addr`), Sentinels from `SENTINELS`, clients from `CLIENTS`. So replication can lag, or
be cut, while clients still reach the server.
"""

import asyncio
import shutil
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.network.relays import CHUNK_BYTES, Pipe, Relay, RelayThread
from tests.support.redis.redis_node import RedisNode
from tests.support.redis.redis_sets import (
    ClusterOfSix,
    SentinelSet,
    cluster_words,
    redis_cluster_of_six,
    sentinel_set,
)
from tests.support.servers import AT_ONCE, free_port, wait_until

NODE_TIMEOUT_MS = 2000
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


class LinkedNode(RedisNode):
    """A server whose port, as all others know it, is that of its link."""

    def __init__(self, wires: Wires, home: Path, options: Sequence[str]) -> None:
        hidden, self.address = free_port(), wires.address()
        self.link = wires.link(hidden)
        port = str(self.link.port)
        words = ["--save", "", "--appendonly", "no", *AT_ONCE, "--bind-source-addr", self.address]
        words += ["--replica-announce-ip", "127.0.0.1", "--replica-announce-port", port]
        if "--cluster-enabled" in options:
            words += ["--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", port]
        super().__init__(home, hidden, [*words, *options])
        self.port = self.link.port

    def start(self) -> None:
        super().start()
        wait_until(self.role, f"redis-server, see {self.home}/server.log")

    def start_empty(self, master: RedisNode) -> None:
        """Start it again as a replica that has nothing yet; in a Cluster it knows whose."""
        (self.home / "dump.rdb").unlink(missing_ok=True)  # written as a replica: a partial copy
        shutil.rmtree(self.home / "appendonlydir", ignore_errors=True)
        if "--cluster-enabled" not in self._words:
            self._words += ["--replicaof", f"127.0.0.1 {master.port}"]
        self.start()

    def kill(self) -> None:
        """Kill it (SIGKILL), and lose what its replicas did not have yet."""
        self.link.cut()
        super().kill()
        self.link.cut()


@contextmanager
def linked_sentinels(home: Path, *options: str, preferred: str = "") -> Iterator[SentinelSet]:
    """Run a Sentinel set of linked servers; the one of this number is promoted first."""
    sentinel_options = [f"bind-source-addr {SENTINELS}", "sentinel announce-ip 127.0.0.1"]

    with closing(Wires()) as wires:

        def make(at: Path, *words: str, password: str = "") -> LinkedNode:
            first = ("--replica-priority", "10") if at.name == preferred else ()
            return LinkedNode(wires, at, [*words, *first])

        with sentinel_set(home, *options, sentinel_options=sentinel_options, make=make) as running:
            yield running


@contextmanager
def linked_cluster(
    home: Path, *options: str
) -> Iterator[tuple[ClusterOfSix, Callable[[Path], LinkedNode]]]:
    """Run a Cluster of linked nodes; gives what makes more of them too."""
    with closing(Wires()) as wires:

        def make(at: Path, *words: str, password: str = "") -> LinkedNode:
            return LinkedNode(wires, at, words)

        def make_more(at: Path) -> LinkedNode:
            alone = ("--cluster-allow-replica-migration", "no")  # a master still, without slots
            return make(at, *cluster_words(NODE_TIMEOUT_MS), *alone, *options)

        with redis_cluster_of_six(
            home, *options, node_timeout_ms=NODE_TIMEOUT_MS, make=make
        ) as running:
            yield running, make_more
