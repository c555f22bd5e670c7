"""kafka-python's connections: when a client is built, doubted, replaced and ended; its sockets.

The first with real threads and dummy clients, the second with real sockets.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka import KafkaConsumer

from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.kafka.attempt import UNANSWERED, Deadline
from duebridge_connectors.kafka.errors import RequestFailed, outcome_of
from duebridge_connectors.kafka.kafka_python import connection as module
from duebridge_connectors.kafka.kafka_python.client import KafkaPythonClient
from duebridge_connectors.kafka.kafka_python.connection import MOST_RETIRING, KafkaPythonConnection
from duebridge_connectors.kafka.kafka_python.network import DIRECT, NetworkClient
from tests.support.servers import silent_listener

from kafka import errors as vendor  # isort: skip


class Dummy(KafkaPythonClient):
    """A client that answers questions as long as `answers`, and ends when it is let go."""

    def __init__(self, _: Mapping[str, object]) -> None:
        self.answers = True
        self.asked = 0
        self.retired = threading.Event()
        self.may_end = threading.Event()

    def ping(self, timeout_s: float) -> None:
        self.asked += 1
        if not self.answers:
            raise RequestFailed("no answer")

    def refresh(self, timeout_s: float) -> None: ...

    def retire(self, grace_s: float) -> None:
        if grace_s == 0:
            self.may_end.set()
        self.retired.set()

    def is_alive(self) -> bool:
        return not self.may_end.is_set()


Use = Callable[[], Dummy]


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaPythonConnection]:
    monkeypatch.setattr(module, "KafkaPythonClient", Dummy)
    connection = KafkaPythonConnection({}, grace_s=1.0)
    yield connection
    connection.close()


@pytest.fixture
def use(connection: KafkaPythonConnection) -> Use:
    def use() -> Dummy:
        client = connection.client(Deadline(5.0))
        assert isinstance(client, Dummy)
        return client

    return use


def test_use_by_several_threads_builds_one_client(use: Use) -> None:
    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(use) for _ in range(8)]
    assert len({id(client.result()) for client in clients}) == 1


def test_replace_one_client_from_two_threads_counts_once(
    connection: KafkaPythonConnection, use: Use
) -> None:
    first = use()
    for _ in range(2):
        connection.observe(first, [UNANSWERED])
    assert connection.replaced == 1


def test_use_after_trouble_without_an_answer_gives_the_client_up(
    connection: KafkaPythonConnection, use: Use
) -> None:
    first = use()
    first.answers = False
    connection.observe(first, [outcome_of(vendor.KafkaTimeoutError("x"))])
    with pytest.raises(BrokerUnavailable):
        use()
    assert first.retired.wait(5.0)
    assert use() is not first


def test_replace_more_than_can_end_is_unavailable_until_one_ends(
    connection: KafkaPythonConnection, use: Use
) -> None:
    given_up = []
    for _ in range(MOST_RETIRING):
        given_up.append(use())
        connection.observe(given_up[-1], [UNANSWERED])
    with pytest.raises(BrokerUnavailable, match="have not ended"):
        use()
    given_up[0].may_end.set()
    assert use() not in given_up


def test_use_after_a_failed_construction_tries_anew(
    monkeypatch: pytest.MonkeyPatch, use: Use
) -> None:
    monkeypatch.setattr(module, "KafkaPythonClient", _refuse)
    with pytest.raises(BrokerUnavailable, match="KafkaTimeoutError"):
        use()
    monkeypatch.setattr(module, "KafkaPythonClient", Dummy)
    assert isinstance(use(), Dummy)


def test_use_after_a_construction_that_failed_meanwhile_tries_anew(
    monkeypatch: pytest.MonkeyPatch, connection: KafkaPythonConnection, use: Use
) -> None:
    go_on = threading.Event()

    def slowly(config: Mapping[str, object]) -> Dummy:
        go_on.wait(5.0)
        return _refuse(config)

    monkeypatch.setattr(module, "KafkaPythonClient", slowly)
    with pytest.raises(BrokerUnavailable):
        connection.client(Deadline(0.01))
    monkeypatch.setattr(module, "KafkaPythonClient", Dummy)
    building = connection._building
    assert building is not None
    go_on.set()
    assert isinstance(building.exception(5.0), vendor.KafkaTimeoutError)
    assert isinstance(use(), Dummy)


def test_use_during_a_slow_construction_ends_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch, connection: KafkaPythonConnection, use: Use
) -> None:
    go_on = threading.Event()

    def slowly(config: Mapping[str, object]) -> Dummy:
        go_on.wait(5.0)
        return Dummy(config)

    monkeypatch.setattr(module, "KafkaPythonClient", slowly)
    with pytest.raises(BrokerUnavailable):
        connection.client(Deadline(0.01))
    go_on.set()
    assert isinstance(use(), Dummy)


def test_close_during_a_construction_ends_what_it_built(
    monkeypatch: pytest.MonkeyPatch, connection: KafkaPythonConnection
) -> None:
    go_on, built = threading.Event(), Dummy({})

    def slowly(_: Mapping[str, object]) -> Dummy:
        go_on.wait(5.0)
        return built

    monkeypatch.setattr(module, "KafkaPythonClient", slowly)
    with pytest.raises(BrokerUnavailable):
        connection.client(Deadline(0.01))
    connection.close()
    assert not built.retired.is_set()
    go_on.set()
    assert built.retired.wait(5.0)


def _refuse(_: Mapping[str, object]) -> Dummy:
    raise vendor.KafkaTimeoutError("nobody there")


# The sockets of a client.

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
        client._manager.failure = before = vendor.KafkaConnectionError("certificate verify failed")
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
