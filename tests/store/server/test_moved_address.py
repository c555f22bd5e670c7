"""A plain URL whose address follows the master: calls leave a server that became a replica."""

from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path

import pytest

from duebridge.config.durability import ReplicaWait
from duebridge.errors import Indeterminate, StoreUnavailable
from duebridge.store.server.connection import Connection
from duebridge.store.server.fitness import read_info
from duebridge.store.server.scripts import Script, script
from tests.support.network.proxy import Proxy, proxied
from tests.support.redis.redis_node import RedisNode, server
from tests.support.servers import wait_until

PATIENCE_S = 20.0
WRITES = "redis.call('SET', KEYS[1], '1')"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[RedisNode]]:
    """A master and its replica."""
    pair = [server(tmp_path / name) for name in ("first", "second")]
    for node in pair:
        node.start()
    follow(pair[1], pair[0])
    yield pair
    for node in pair:
        node.kill()


def follow(replica: RedisNode, master: RedisNode) -> None:
    replica.ask("REPLICAOF", "127.0.0.1", master.port)
    wait_until(lambda: replica.ask("ROLE")[3] == b"connected", "the replica to follow")


def fail_over(nodes: list[RedisNode], address: Proxy) -> None:
    """Make the second one the master, to which the address leads from now on."""
    first, second = nodes
    second.ask("REPLICAOF", "NO", "ONE")
    follow(first, second)
    address.lead_to(second.port)


def port_asked(connection: Connection) -> int:
    return int(read_info(connection, "server")[0]["tcp_port"])


def plain(source: str) -> Script:
    """A script of a test's own, by another script's form."""
    digest = sha1(source.encode(), usedforsecurity=False).hexdigest()
    return script("next")._replace(source=source, sha=digest)


@pytest.mark.parametrize(
    "source", ["#!lua\n" + WRITES, WRITES, "return redis.pcall('SET', KEYS[1], '1')"]
)
@pytest.mark.parametrize(
    "wanted", [None, ReplicaWait.model_validate({"replicas": 1, "timeout": "100ms"})]
)
def test_write_to_a_demoted_server_is_repeated_at_the_new_master(
    open_at: Callable[..., Connection],
    nodes: list[RedisNode],
    source: str,
    wanted: ReplicaWait | None,
) -> None:
    with proxied(nodes[0].port) as address:
        connection = open_at(f"redis://127.0.0.1:{address.port}", PATIENCE_S)
        assert port_asked(connection) == nodes[0].port
        fail_over(nodes, address)
        assert port_asked(connection) == nodes[0].port, "the old connection is open still"
        try:
            reply = connection.run(plain(source), ["k"], [], PATIENCE_S, wanted)
            assert reply.repeated
        except Indeterminate:
            assert wanted is not None, "the replica has only just begun to follow"
        assert nodes[1].ask("GET", "k") == b"1"
        assert port_asked(connection) == nodes[1].port


def test_connection_to_a_replica_is_refused(
    open_at: Callable[..., Connection], nodes: list[RedisNode]
) -> None:
    connection = open_at(f"redis://127.0.0.1:{nodes[1].port}", PATIENCE_S)
    with pytest.raises(StoreUnavailable, match="the server that answered is a replica"):
        connection.load_scripts()


def test_user_without_the_right_to_ask_for_the_role_is_let_in(
    open_at: Callable[..., Connection], nodes: list[RedisNode]
) -> None:
    nodes[0].ask("ACL", "SETUSER", "few", "on", ">secret", "~*", "&*", "+@all", "-role")
    open_at(f"redis://few:secret@127.0.0.1:{nodes[0].port}", PATIENCE_S).load_scripts()
