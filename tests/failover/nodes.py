"""Servers of a set, each behind a link, so that its replication can lag or be cut."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests.failover.wires import SENTINELS, Wires
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
