"""kafka-python's connections: which sockets outlive a client, and which failure it tells."""

import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaConnectionError

from duebridge_connectors.kafka.kafka_python.network import DIRECT, NetworkClient
from tests.support.servers import silent_listener

MORE_THAN_IS_TAKEN = 50_000_000  # bytes: beyond what the kernel keeps for one who does not read
WITHIN_S = 10.0


def connection_to(
    client: NetworkClient, is_done: Callable[[Any], bool], timeout_ms: int | None = None
) -> Any:
    """Return a connection to the bootstrap server once it has come so far."""
    manager = client._manager
    (server,) = manager.cluster.bootstrap_brokers()
    connection = manager.get_connection(server.node_id, timeout_ms)
    give_up_at = time.monotonic() + WITHIN_S
    while not is_done(connection) and time.monotonic() < give_up_at:
        client._net.poll(timeout_ms=10)
    return connection


def test_connection_that_its_deadline_ends_hides_no_failure_before_it() -> None:
    """Such as a certificate that is wrong: that is what the error of a publish is to say."""
    with silent_listener() as port:
        servers = {"bootstrap_servers": [f"127.0.0.1:{port}"], "proxy_url": DIRECT}
        client = NetworkClient(None, **KafkaConsumer.DEFAULT_CONFIG | servers)
        client._manager.failure = before = KafkaConnectionError("certificate verify failed")
        late = connection_to(client, lambda found: found.init_future.is_done, timeout_ms=0)
        client.close()
    assert "timed out" in str(late.init_future.exception)
    assert client._manager.failure is before


def test_close_of_a_client_with_bytes_to_send_leaves_no_socket_open() -> None:
    with silent_listener() as port:
        servers = {"bootstrap_servers": [f"127.0.0.1:{port}"]}
        client = NetworkClient(None, **KafkaConsumer.DEFAULT_CONFIG | servers)
        connection = connection_to(client, lambda found: found.transport is not None)
        connection.init_future.success(True)  # until then `close` drops what is to be sent
        transport = connection.transport
        transport.write(bytes(MORE_THAN_IS_TAKEN))
        sock = transport._sock
        client.close()
        assert sock.fileno() == -1
