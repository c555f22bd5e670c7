"""The map of a Cluster's slots: nodes without slots, slots without a node, nodes that are gone."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from duebridge.errors import StoreUnavailable
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.server.connection import Connection
from duebridge.store.server.sets.cluster import ClusterClient
from tests.support.desk import answers
from tests.support.redis.redis_node import HOST, RedisNode, server
from tests.support.redis.redis_sets import cluster_words, slots_of
from tests.support.servers import take_every_slot, wait_until

OpenAt = Callable[..., Connection]
TIMEOUT_S = 1.0
WITHIN_S = 30.0
HALVES = ((0, 8191), (8192, 16383))


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[RedisNode]]:
    """Two nodes that do not know each other, and have no slots."""
    nodes = [server(tmp_path / name, *cluster_words(2000)) for name in "ab"]
    try:
        for each in nodes:
            each.start()
        yield nodes
    finally:
        for each in nodes:
            each.kill()


def url_of(*nodes: RedisNode) -> str:
    return f"redis+cluster://{','.join(f'{HOST}:{each.port}' for each in nodes)}"


def give_halves(nodes: list[RedisNode]) -> None:
    for epoch, (node, half) in enumerate(zip(nodes, HALVES, strict=True), 1):
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        node.ask("CLUSTER", "ADDSLOTSRANGE", *half)


def meet(nodes: list[RedisNode]) -> None:
    """Make one Cluster of two nodes, and return once each knows the other's slots."""
    first, second = nodes
    bus = second.ask("CONFIG GET", "cluster-port")["cluster-port"]
    first.ask("CLUSTER", "MEET", HOST, second.port, bus)
    wait_until(lambda: all(len(slots_of(each)) == 2 for each in nodes), "the Cluster")


def shard_of(connection: Connection, node: RedisNode) -> DelayStore:
    """Return a shard whose slot a node has."""
    owned = [each for each in slots_of(node) if int(each[2][1]) == node.port]
    first, last = owned[0][:2]
    shards = (Shard("map", "route", number) for number in range(100))
    return next(
        DelayStore(connection, each)
        for each in shards
        if first <= int(node.ask("CLUSTER", "KEYSLOT", each.wake)) <= last
    )


def test_node_without_slots_is_asked_for_the_map_in_vain(
    nodes: list[RedisNode], open_at: OpenAt
) -> None:
    owner, empty = nodes
    take_every_slot(owner.port)
    store = shard_of(open_at(url_of(owner, empty), TIMEOUT_S, WITHIN_S), owner)
    wait_until(lambda: answers(store), "the owner of the slots")
    owner.kill()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            store.next()
    owner.start()
    wait_until(lambda: answers(store), "the owner of the slots")
    other = shard_of(open_at(url_of(empty, owner), TIMEOUT_S, WITHIN_S), owner)
    wait_until(lambda: answers(other), "the owner of the slots, named last")


def test_cluster_without_slots_is_unavailable(nodes: list[RedisNode], open_at: OpenAt) -> None:
    with pytest.raises(StoreUnavailable):
        open_at(url_of(*nodes), TIMEOUT_S)


def test_slots_that_no_node_had_are_found_once_a_node_has_them(
    nodes: list[RedisNode], open_at: OpenAt
) -> None:
    give_halves(nodes)
    connection = open_at(url_of(*nodes), TIMEOUT_S, WITHIN_S)
    covered, bare = (shard_of(connection, each) for each in nodes)
    wait_until(lambda: answers(covered), "the node to serve its slots")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            bare.next()
    assert connection.node_of(bare.shard.wake) == ""
    meet(nodes)
    wait_until(lambda: answers(bare), "the other node's slots")


def test_silent_node_that_is_gone_from_the_cluster_is_asked_no_more(
    nodes: list[RedisNode], open_at: OpenAt
) -> None:
    stays, goes = nodes
    give_halves(nodes)
    meet(nodes)
    connection = open_at(url_of(*nodes), TIMEOUT_S, WITHIN_S)
    assert isinstance(connection.client, ClusterClient)
    keeper, store = connection.client._map_keeper, shard_of(connection, goes)
    wait_until(lambda: answers(store), "the node to serve its slots")
    lost = connection.client.get_node_from_key(store.shard.wake)
    gone = goes.ask("CLUSTER", "MYID")
    goes.freeze()
    assert not answers(store)
    stays.ask("CLUSTER", "FORGET", gone)
    stays.ask("CLUSTER", "ADDSLOTSRANGE", *HALVES[1])
    wait_until(lambda: answers(store), "the node that stays")
    keeper.failed(lost, is_silent=True)  # the end of a call that began before
    wait_until(lambda: keeper._thread is None, "the thread to have nothing to do")


FORKING = """
import os, signal, sys, threading, time
from duebridge.store.server.connection import open_connection

client = open_connection(sys.argv[1]).client
manager, keeper = client.nodes_manager, client._map_keeper
pools = [each.redis_connection.connection_pool for each in client.get_nodes()]
held = threading.Event()

def hold():  # as the thread that renews the map
    for each in (keeper, manager, manager.read_load_balancer, *pools):
        each._lock.acquire()
    manager._initialization_lock.acquire()
    held.set()
    time.sleep(3600)

threading.Thread(target=hold, daemon=True).start()
held.wait()
child, epoch = os.fork(), manager._epoch
if child == 0:
    signal.alarm(20)
    client.renew_map()
    while manager._epoch == epoch:
        time.sleep(0.01)
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
"""


def test_child_of_a_fork_amid_a_renewal_renews_the_map(nodes: list[RedisNode]) -> None:
    take_every_slot(nodes[0].port)
    command = [sys.executable, "-c", FORKING, url_of(nodes[0])]
    assert subprocess.run(command, timeout=60).returncode == 0
