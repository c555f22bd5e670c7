"""Real sets of Redis servers that fail over: three Sentinels over three servers, a Cluster of six.

Every server listens on a free port of this machine. A test kills, freezes, starts and promotes them
at will; all of them are gone at its end.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import redis

from tests.support.redis.redis_node import HOST, RedisNode, server
from tests.support.servers import free_port, of_a_cluster, wait_until

NAME = "duebridge"  # the service that the Sentinels watch
SLOTS = 16384
# A Sentinel connects to a new master up to a second late: with less it takes that for an outage.
DOWN_AFTER_MS = 2000
_await = partial(wait_until, every_s=0.05)  # each look opens a connection to every server


class SentinelSet:
    """Three Sentinels, and the servers they watch, which are the `nodes` of the set."""

    def __init__(
        self, sentinels: Sequence[RedisNode], servers: Sequence[RedisNode], password: str
    ) -> None:
        self.sentinels, self.servers, self.nodes = sentinels, servers, servers
        hosts = ",".join(f"{HOST}:{each.port}" for each in sentinels)
        self.url = f"redis+sentinel://{f':{password}@' if password else ''}{hosts}/{NAME}/0"

    def master(self) -> RedisNode:
        """Return the server that the Sentinels name; fails unless most of those alive agree."""
        named = [port for each in self.sentinels if (port := _named_master(each))]
        assert named, "no Sentinel answers"
        port = max(set(named), key=named.count)
        assert 2 * named.count(port) > len(named), f"the Sentinels disagree: {named}"
        return next(each for each in self.servers if each.port == port)

    def replicas(self) -> list[RedisNode]:
        """Return the servers that are not the master by the Sentinels' word."""
        master = self.master()
        return [each for each in self.servers if each is not master]

    def fail_over(self) -> RedisNode:
        """Promote a replica, as for maintenance (the old master lives on); return the new one."""
        old = self.master()
        self.sentinels[0].ask("SENTINEL", "FAILOVER", NAME)
        return self.await_master_after(old)

    def kill_master(self, key: str = "", killed: Callable[[], object] = bool) -> RedisNode:
        """Kill the master, of any key, call `killed`; return it once another one is promoted."""
        (old := self.master()).kill()
        killed()
        self.await_master_after(old)
        return old

    def await_master_after(self, old: RedisNode, within_s: float = 40.0) -> RedisNode:
        """Return the promoted server once the Sentinels name it and it says so itself."""

        def is_promoted() -> bool:
            with suppress(AssertionError, redis.RedisError):
                new = self.master()
                return new is not old and new.role() == "master"
            return False

        _await(is_promoted, "another master", within_s)
        return self.master()

    def await_whole(self, within_s: float = 60.0) -> None:
        """Return once a kill may follow: every Sentinel knows the others and every replica."""
        _await(
            lambda: all(_knows(each, len(self.servers) - 1) for each in self.sentinels),
            "the Sentinels to know each other and every replica",
            within_s,
        )


def _named_master(sentinel: RedisNode) -> int:
    with suppress(redis.RedisError):
        named = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return int(named[1]) if named else 0
    return 0


def _knows(sentinel: RedisNode, replicas: int) -> bool:
    try:
        known = sentinel.ask("SENTINEL MASTER", NAME)
        found = sentinel.ask("SENTINEL SLAVES", NAME)
    except redis.RedisError:
        return False
    up = [each for each in found if not {"s_down", "o_down", "disconnected"} & _flags(each)]
    is_well = not {"s_down", "o_down", "failover_in_progress"} & _flags(known)
    return is_well and known["num-other-sentinels"] == 2 and len(up) == replicas


def _flags(state: Any) -> set[str]:
    """Return the flags of a server as a Sentinel sees it; redis-py gives a text or a set."""
    flags = state["flags"]
    return set(flags.split(",")) if isinstance(flags, str) else set(flags)


@contextmanager
def sentinel_set(
    home: Path,
    *options: str,
    replicas: int = 2,
    down_after_ms: int = DOWN_AFTER_MS,
    password: str = "",
    sentinel_options: Sequence[str] = (),
    make: Callable[..., RedisNode] = server,
    watch: Callable[..., RedisNode] = RedisNode,
) -> Iterator[SentinelSet]:
    """Run three Sentinels over a master and its replicas, ready for a failover.

    `options` go to every server, `sentinel_options` (lines of a configuration file) to every
    Sentinel. `password` is the servers'; with `requirepass X` among the Sentinels' options name
    X there as `sentinel sentinel-pass X` too. `make` makes a server, as `server` does, and
    `watch` a Sentinel.
    """
    servers = [make(home / "0", *options, password=password)]
    follow = ("--replicaof", f"{HOST} {servers[0].port}")
    for number in range(1, replicas + 1):
        servers.append(make(home / str(number), *options, *follow, password=password))
    lines = _sentinel_lines(servers[0].port, down_after_ms, password)
    lines += sentinel_options
    sentinels = [watch(*_sentinel(home / f"sentinel{number}", lines)) for number in range(3)]
    with _running(servers):
        # A Sentinel looks for replicas once in ten seconds: they have to be there at its start.
        _await(lambda: servers[0].online() == replicas, "the replicas to follow")
        with _running(sentinels):
            secret = next((line[12:] for line in lines if line.startswith("requirepass ")), "")
            for each in sentinels:
                each.password = secret
            running = SentinelSet(sentinels, servers, password)
            running.await_whole()
            yield running


def _sentinel_lines(port: int, down_after_ms: int, password: str) -> list[str]:
    lines = [
        f"sentinel monitor {NAME} {HOST} {port} 2",
        f"sentinel down-after-milliseconds {NAME} {down_after_ms}",
        f"sentinel failover-timeout {NAME} 3000",
        f"sentinel parallel-syncs {NAME} 1",
    ]
    return [*lines, f"sentinel auth-pass {NAME} {password}"] if password else lines


def _sentinel(home: Path, lines: Sequence[str]) -> tuple[Path, int, list[str]]:
    """Return what a node that is a Sentinel is made of."""
    home.mkdir(parents=True)
    file = home / "sentinel.conf"  # Sentinel writes it again: each needs one of its own
    file.write_text("\n".join(lines) + "\n")
    return home, free_port(), [str(file), "--sentinel"]


@contextmanager
def _running(nodes: Sequence[RedisNode]) -> Iterator[None]:
    with ExitStack() as stack:
        for each in nodes:
            stack.callback(each.kill)
            each.start()
        yield


class ClusterOfSix:
    """A Cluster of three masters with a replica each."""

    def __init__(self, nodes: Sequence[RedisNode], password: str) -> None:
        self.nodes = nodes
        hosts = ",".join(f"{HOST}:{each.port}" for each in nodes)
        self.url = f"redis+cluster://{f':{password}@' if password else ''}{hosts}"

    def masters(self) -> list[RedisNode]:
        """Return the nodes that say of themselves that they are masters."""
        return [each for each in self.nodes if each.role() == "master"]

    def slot_of(self, key: str) -> int:
        """Return the slot of a key, by its hash tag."""
        return int(self._any().ask("CLUSTER", "KEYSLOT", key))

    def owner_of(self, key: str) -> RedisNode:
        """Return the master that owns the key's slot, by the word of most nodes that answer."""
        slot = self.slot_of(key)
        named = [port for each in self.nodes if (port := _owner(each, slot))]
        port = max(set(named), key=named.count)
        return next(each for each in self.nodes if each.port == port)

    def replicas_of(self, master: RedisNode) -> list[RedisNode]:
        """Return the replicas of a master that answers."""
        ports = {int(port) for _, port, *_ in master.ask("ROLE")[2]}
        return [each for each in self.nodes if each.port in ports]

    def fail_over(self, master: RedisNode) -> RedisNode:
        """Promote the replica of a live master (CLUSTER FAILOVER, no loss); return the new one."""
        (replica,) = self.replicas_of(master)
        replica.ask("CLUSTER", "FAILOVER")
        _await(lambda: replica.role() == "master", "the replica to be promoted")
        return replica

    def kill_master(self, key: str = "", killed: Callable[[], object] = bool) -> RedisNode:
        """Kill the owner of a key, call `killed`; return it once its replica is promoted."""
        (old := self.owner_of(key)).kill()
        killed()
        self.await_owner_after(old, key)
        return old

    def await_owner_after(self, old: RedisNode, key: str, within_s: float = 40.0) -> RedisNode:
        """Return the node that was promoted for the slots of a dead or frozen master."""

        def is_promoted() -> bool:
            new = self.owner_of(key)
            return new is not old and new.role() == "master"

        _await(is_promoted, "another owner", within_s)
        return self.owner_of(key)

    def begin_migration(self, key: str, to: RedisNode) -> "Migration":
        """Mark the key's slot as leaving its owner for another master; no key moves yet."""
        slot, source = self.slot_of(key), self.owner_of(key)
        to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", _id(source))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", _id(to))
        return Migration(self, slot, source, to)

    def mend(self) -> None:
        """Resume the nodes that were frozen, start those that were killed, and wait for all."""
        for node in self.nodes:
            node.resume()
            if node.process is not None and node.process.poll() is not None:
                node.start()
        self.await_whole()

    def await_whole(self, within_s: float = 60.0) -> None:
        """Return once every node is well and every replica follows its master."""
        _await(lambda: all(_is_well(each) for each in self.nodes), "the Cluster", within_s)

    def _any(self) -> RedisNode:
        return next(each for each in self.nodes if each.role())


class Migration:
    """A slot on its way from one master to another."""

    def __init__(
        self, cluster: ClusterOfSix, slot: int, source: RedisNode, target: RedisNode
    ) -> None:
        self._cluster, self.slot, self.source, self.target = cluster, slot, source, target

    def move_keys(self, most: int = 1_000_000) -> int:
        """Move up to `most` keys of the slot; return how many."""
        keys = self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, most)
        for key in keys:
            where: tuple[str | int, ...] = (HOST, self.target.port)
            self.source.ask("MIGRATE", *where, key, 0, 5000)
        return len(keys)

    def end(self) -> None:
        """Move the rest, and give the slot to its new owner."""
        self.move_keys()
        owner = _id(self.target)
        for each in (self.target, self.source, *self._cluster.masters()):
            each.ask("CLUSTER", "SETSLOT", self.slot, "NODE", owner)


@contextmanager
def redis_cluster_of_six(
    home: Path,
    *options: str,
    node_timeout_ms: int = 2000,
    password: str = "",
    make: Callable[..., RedisNode] = server,
) -> Iterator[ClusterOfSix]:
    """Run three masters and a replica of each, ready for a failover; `options` go to all six."""
    nodes = [
        make(home / str(number), *cluster_words(node_timeout_ms), *options, password=password)
        for number in range(6)
    ]
    with _running(nodes):
        _join(nodes)
        cluster = ClusterOfSix(nodes, password)
        cluster.await_whole()
        yield cluster


def cluster_words(timeout_ms: int) -> list[str]:
    """Return the options that make a server a node of a Cluster."""
    words = [*of_a_cluster(), "--cluster-config-file", "nodes.conf"]
    words += ["--cluster-node-timeout", str(timeout_ms)]
    return [*words, "--cluster-require-full-coverage", "no"]  # else all wait for a part's failover


def _join(nodes: Sequence[RedisNode]) -> None:
    """Meet, share the slots among the first three, and make the others their replicas."""
    masters = nodes[:3]
    bounds = [0, 5461, 10923, SLOTS]
    for epoch, node in enumerate(nodes, 1):
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", epoch)
    for node, first, end in zip(masters, bounds, bounds[1:], strict=False):
        node.ask("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
    for node in nodes[1:]:
        nodes[0].ask("CLUSTER", "MEET", HOST, node.port, _bus(node))
    _await(lambda: all(_count(each) == 6 for each in nodes), "the nodes to meet")
    for replica, master in zip(nodes[3:], masters, strict=True):
        replica.ask("CLUSTER", "REPLICATE", _id(master))


def _bus(node: RedisNode) -> int:
    return int(node.ask("CONFIG GET", "cluster-port")["cluster-port"])


def _id(node: RedisNode) -> str:
    answer = node.ask("CLUSTER", "MYID")
    return answer.decode() if isinstance(answer, bytes) else str(answer)


def _count(node: RedisNode) -> int:
    return int(node.ask("CLUSTER INFO")["cluster_known_nodes"])


def _owner(node: RedisNode, slot: int) -> int:
    with suppress(redis.RedisError):
        for first, last, master, *_ in slots_of(node):
            if first <= slot <= last:
                return int(master[1])
    return 0


def slots_of(node: RedisNode) -> list[Any]:
    """Return CLUSTER SLOTS as the server words it; redis-py would make a mapping of it."""
    with node.client() as client:
        client.response_callbacks.pop("CLUSTER SLOTS", None)
        return list(client.execute_command("CLUSTER SLOTS"))


def _is_well(node: RedisNode) -> bool:
    try:
        info = node.ask("CLUSTER INFO")
        role = node.ask("ROLE")
    except redis.RedisError:
        return False
    is_linked = bool(role[2]) if role[0] == b"master" else role[3] == b"connected"
    # Who still doubts a master that is back may elect its replica in the middle of a test.
    doubted = int(info["cluster_slots_pfail"]) + int(info["cluster_slots_fail"])
    return info["cluster_state"] == "ok" and is_linked and not doubted


AnySet = SentinelSet | ClusterOfSix
SETS: dict[str, Callable[..., AbstractContextManager[AnySet]]] = {
    "sentinel": sentinel_set,
    "cluster": redis_cluster_of_six,
}
