"""kafka-python's sockets: which of them outlive a client."""

import time
from typing import Any

from kafka import KafkaConsumer

from duebridge_connectors.kafka.kafka_python.network import NetworkClient
from tests.support.servers import silent_listener

MORE_THAN_IS_TAKEN = 50_000_000  # bytes: beyond what the kernel keeps for one who does not read
WITHIN_S = 10.0


def connection_of(client: NetworkClient) -> Any:
    """Return a connection to the bootstrap server whose handshake is over."""
    manager = client._manager
    (server,) = manager.cluster.bootstrap_brokers()
    connection = manager.get_connection(server.node_id)
    give_up_at = time.monotonic() + WITHIN_S
    while connection.transport is None and time.monotonic() < give_up_at:
        client._net.poll(timeout_ms=10)
    connection.init_future.success(True)  # until then `close` drops what is to be sent
    return connection


def test_close_of_a_client_with_bytes_to_send_leaves_no_socket_open() -> None:
    with silent_listener() as port:
        servers = {"bootstrap_servers": [f"127.0.0.1:{port}"]}
        client = NetworkClient(None, **KafkaConsumer.DEFAULT_CONFIG | servers)
        transport = connection_of(client).transport
        transport.write(bytes(MORE_THAN_IS_TAKEN))
        sock = transport._sock
        client.close()
        assert sock.fileno() == -1
