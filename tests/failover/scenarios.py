"""What is broken, one function each, under traffic: schedules, cancels, claims, deliveries."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import redis

from tests.failover.nodes import linked_cluster, linked_sentinels
from tests.failover.power import powered
from tests.failover.rig import ALL, Alone, Cluster, Rig, Scenario, Sentinels
from tests.support.servers import wait_until

FAR_BEHIND_S = 0.3
MINUTE_S = 60.0


@contextmanager
def sentinels(home: Path, options: tuple[str, ...], preferred: str = "") -> Iterator[Sentinels]:
    with linked_sentinels(home, *options, preferred=preferred) as running:
        yield Sentinels(running)


@contextmanager
def cluster(home: Path, options: tuple[str, ...]) -> Iterator[Cluster]:
    with linked_cluster(home, *options) as (running, make):
        yield Cluster(running, make)


@contextmanager
def alone(home: Path, options: tuple[str, ...]) -> Iterator[Alone]:
    with powered(home / "0", *options) as node:
        yield Alone(node)


def kill(rig: Rig) -> str:
    """Kill a master; it comes back empty, as a replica of the new one."""
    old = rig.owner()
    old.kill()
    new = rig.see_promotion(old, old.start_empty)
    return f"{old.home.name} killed, {new.home.name} promoted"


def freeze(rig: Rig) -> str:
    """Freeze a master, and let it go on as one when another was promoted."""
    old = rig.owner()
    old.freeze()
    new = rig.see_promotion(old, lambda _: old.resume())
    return f"{old.home.name} frozen, {new.home.name} promoted"


def cut_off(rig: Rig) -> str:
    """Part a master from its replicas and the Sentinels, while clients still reach it."""
    old = rig.owner()
    old.link.part()
    seen: list[str] = []

    def heal(_: Any) -> None:
        seen.append(old.role())
        old.link.heal()

    rig.see_promotion(old, heal)
    return "two masters" if seen == ["master"] else ""


def lag(rig: Rig) -> str:
    """Kill a master whose preferred replica is far behind: that one is promoted."""
    old, behind = rig.owner(), rig.place.set.servers[1]
    behind.link.wires.lags_s[behind.address] = FAR_BEHIND_S
    time.sleep(2 * FAR_BEHIND_S)  # until what is on its way is so late
    old.kill()
    new = rig.see_promotion(old, old.start_empty)
    return f"{FAR_BEHIND_S} s behind" if new is behind else ""


def resync(rig: Rig) -> str:
    """Kill a master that gives a replica a full copy."""
    old = rig.owner()
    joining = rig.place.set.replicas()[0]
    old.ask("CONFIG", "SET", "repl-diskless-sync-delay", 60)  # so long does the copy not begin
    joining.kill()
    joining.start_empty(old)

    def is_joining() -> bool:
        found = [each for each in old.ask("INFO", "replication").values() if isinstance(each, dict)]
        return (joining.port, "wait_bgsave") in {(each["port"], each["state"]) for each in found}

    wait_until(is_joining, "a full copy")
    old.kill()
    new = rig.see_promotion(old, old.start_empty)
    return "" if new is joining else "killed amid a full copy"


def switch(rig: Rig) -> str:
    """Order a failover while the old master lives: it takes writes until it is told."""
    old = rig.owner()
    rig.place.set.fail_over()
    rig.see_promotion(old, lambda _: None)
    return "switched"


def twice(rig: Rig) -> str:
    """Kill a master, and the next one as soon as the set is whole again."""
    began = time.monotonic()
    kill(rig)
    rig.place.set.await_whole()
    effect, took_s = kill(rig), time.monotonic() - began
    return f"{effect}, the second one in {took_s:.0f} s" if took_s < MINUTE_S else ""


def cut_power(rig: Rig) -> str:
    """Cut the power of the only server, and start it with what its disk has."""
    server = rig.owner()
    lost = server.cut_power()
    server.start()
    rig.see_claims(server)
    return f"{lost} bytes were not on disk"


def move_slots(rig: Rig) -> str:
    """Move the slots of a master's shards to another, key by key."""
    source = rig.owner()
    target = next(each for each in rig.place.set.masters() if each is not source)
    moved = rig.shards_of(source)
    for shard in moved:
        _move(rig, shard.tag, target)
    return f"{len(moved)} slots moved"


def add_and_remove(rig: Rig) -> str:
    """Add a node and its replica, give it a shard's slot, take it back, and remove both."""
    cluster, first, tag = rig.place.set, rig.owner(), rig.shards[0].tag
    added = [rig.place.make(rig.home / str(number)) for number in (6, 7)]
    try:
        _join(cluster, added)
        _move(rig, tag, added[0])
        _move(rig, tag, first)
        for node in added:
            _forget(cluster, node)
    finally:
        for node in added:
            node.kill()
    return "a node added and removed"


def _move(rig: Rig, tag: str, target: Any) -> None:
    rig.place.set.begin_migration(tag, target).end()
    rig.see_claims(target)


def _join(cluster: Any, added: list[Any]) -> None:
    known, nodes = cluster.nodes[0], [*cluster.nodes, *added]
    for node in added:
        node.start()
        bus = node.ask("CONFIG GET", "cluster-port")["cluster-port"]
        known.ask("CLUSTER", "MEET", "127.0.0.1", node.port, bus)

    def is_known(node: Any) -> bool:
        info = node.ask("CLUSTER INFO")
        return int(info["cluster_known_nodes"]) == len(nodes) and info["cluster_state"] == "ok"

    wait_until(lambda: all(map(is_known, nodes)), "the nodes to meet")
    cluster.nodes = nodes
    master, replica = added
    replica.ask("CLUSTER", "REPLICATE", master.ask("CLUSTER", "MYID").decode())
    wait_until(lambda: master.online() == 1, "the replica")


def _forget(cluster: Any, node: Any) -> None:
    name = node.ask("CLUSTER", "MYID").decode()
    cluster.nodes = [each for each in cluster.nodes if each is not node]
    node.kill()
    for each in cluster.nodes:
        with suppress(redis.ResponseError):  # a node that is its replica does not forget it
            each.ask("CLUSTER", "FORGET", name)


BEHIND = partial(sentinels, preferred="1")
SCENARIOS = {
    each.name: each
    for each in (
        Scenario("killed", "master killed", kill, sentinels),
        Scenario("frozen", "master frozen, then back", freeze, sentinels),
        Scenario(
            "cut_off", "master cut off from its replicas, not from clients", cut_off, sentinels
        ),
        Scenario(
            "lagging", f"master killed, a replica {FAR_BEHIND_S} s behind promoted", lag, BEHIND
        ),
        Scenario("resync", "master killed amid a full copy to a replica", resync, sentinels),
        Scenario("switched", "`SENTINEL FAILOVER`", switch, sentinels),
        Scenario("twice", "two masters killed within a minute", twice, sentinels),
        Scenario("node_killed", "Cluster: a master killed", kill, cluster),
        Scenario("slots_moved", "Cluster: slots moved", move_slots, cluster, ALL),
        Scenario(
            "nodes_changed",
            "Cluster: a node added and removed",
            add_and_remove,
            cluster,
            ALL,
        ),
        Scenario(
            "power_cut",
            "no failover: the power of the only server is cut",
            cut_power,
            alone,
            keeps_all=frozenset({"fsync"}),
            tried=("async", "fsync"),
        ),
    )
}
