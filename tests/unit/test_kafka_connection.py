"""When a client is built, doubted, replaced and ended: with real threads and dummy clients."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import BrokerUnavailable, Delivery
from duebridge_connectors.kafka import connection as module
from duebridge_connectors.kafka.answers import Answer
from duebridge_connectors.kafka.client import Client
from duebridge_connectors.kafka.connection import MOST_RETIRING, Connection
from duebridge_connectors.kafka.deadline import Deadline
from duebridge_connectors.kafka.errors import NotSent, Unanswered
from duebridge_connectors.kafka.exchange import Exchange

from kafka import errors as vendor  # isort: skip


class Dummy(Client):
    """A client that answers questions as long as `answers`, and ends when it is let go."""

    def __init__(self, _: Mapping[str, object]) -> None:
        self.answers = True
        self.asked = 0
        self.retired = threading.Event()
        self.may_end = threading.Event()

    def ask(self, topics: Collection[str], timeout_s: float) -> dict[str, Answer]:
        self.asked += 1
        if not self.answers:
            raise NotSent("no answer")
        return {}

    def refresh(self, timeout_s: float) -> None: ...

    def retire(self, grace_s: float) -> None:
        if grace_s == 0:
            self.may_end.set()
        self.retired.set()

    def is_alive(self) -> bool:
        return not self.may_end.is_set()


Use = Callable[[], Dummy]


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr(module, "Client", Dummy)
    connection = Connection({}, grace_s=1.0)
    yield connection
    connection.close()


@pytest.fixture
def use(connection: Connection) -> Use:
    def use() -> Dummy:
        client = connection.client(Deadline(5.0))
        assert isinstance(client, Dummy)
        return client

    return use


def exchange_with(error: BaseException) -> Exchange:
    exchange = Exchange([Delivery("1", Target("k", topic="t"), b"")], Deadline(5.0))
    exchange.answers = [error]
    return exchange


def test_use_twice_builds_one_client(use: Use) -> None:
    assert use() is use()


def test_use_by_several_threads_builds_one_client(use: Use) -> None:
    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(use) for _ in range(8)]
    assert len({id(client.result()) for client in clients}) == 1


def test_use_after_an_unanswered_delivery_builds_another(connection: Connection, use: Use) -> None:
    first = use()
    connection.heed(first, exchange_with(Unanswered("x")))
    assert use() is not first
    assert first.retired.wait(5.0)
    assert connection.replaced == 1


def test_replace_one_client_from_two_threads_counts_once(connection: Connection, use: Use) -> None:
    first = use()
    for _ in range(2):
        connection.heed(first, exchange_with(Unanswered("x")))
    assert connection.replaced == 1


@pytest.mark.parametrize("error", [vendor.KafkaConnectionError("x"), NotSent("x")])
def test_use_after_trouble_asks_the_broker_first(
    error: BaseException, connection: Connection, use: Use
) -> None:
    first = use()
    connection.heed(first, exchange_with(error))
    assert use() is first
    assert first.asked == 1
    assert use().asked == 1


def test_use_after_a_mere_refusal_asks_nothing(connection: Connection, use: Use) -> None:
    first = use()
    connection.heed(first, exchange_with(vendor.InvalidRecordError("x")))
    assert use().asked == 0


def test_use_after_trouble_without_an_answer_gives_the_client_up(
    connection: Connection, use: Use
) -> None:
    first = use()
    first.answers = False
    connection.heed(first, exchange_with(vendor.KafkaTimeoutError("x")))
    with pytest.raises(BrokerUnavailable):
        use()
    assert first.retired.wait(5.0)
    assert use() is not first


def test_replace_more_than_can_end_is_unavailable_until_one_ends(
    connection: Connection, use: Use
) -> None:
    given_up = []
    for _ in range(MOST_RETIRING):
        given_up.append(use())
        connection.heed(given_up[-1], exchange_with(Unanswered("x")))
    with pytest.raises(BrokerUnavailable, match="have not ended"):
        use()
    given_up[0].may_end.set()
    assert use() not in given_up


def test_use_after_a_failed_construction_tries_anew(
    monkeypatch: pytest.MonkeyPatch, use: Use
) -> None:
    monkeypatch.setattr(module, "Client", _refuse)
    with pytest.raises(BrokerUnavailable, match="KafkaTimeoutError"):
        use()
    monkeypatch.setattr(module, "Client", Dummy)
    assert isinstance(use(), Dummy)


def test_use_after_a_construction_that_failed_meanwhile_tries_anew(
    monkeypatch: pytest.MonkeyPatch, connection: Connection, use: Use
) -> None:
    go_on = threading.Event()

    def slowly(config: Mapping[str, object]) -> Dummy:
        go_on.wait(5.0)
        return _refuse(config)

    monkeypatch.setattr(module, "Client", slowly)
    with pytest.raises(BrokerUnavailable):
        connection.client(Deadline(0.01))
    monkeypatch.setattr(module, "Client", Dummy)
    building = connection._building
    assert building is not None
    go_on.set()
    assert isinstance(building.exception(5.0), vendor.KafkaTimeoutError)
    assert isinstance(use(), Dummy)


def test_use_during_a_slow_construction_ends_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch, connection: Connection, use: Use
) -> None:
    go_on = threading.Event()

    def slowly(config: Mapping[str, object]) -> Dummy:
        go_on.wait(5.0)
        return Dummy(config)

    monkeypatch.setattr(module, "Client", slowly)
    with pytest.raises(BrokerUnavailable):
        connection.client(Deadline(0.01))
    go_on.set()
    assert isinstance(use(), Dummy)


def test_close_during_a_construction_ends_what_it_built(
    monkeypatch: pytest.MonkeyPatch, connection: Connection
) -> None:
    go_on, built = threading.Event(), Dummy({})

    def slowly(_: Mapping[str, object]) -> Dummy:
        go_on.wait(5.0)
        return built

    monkeypatch.setattr(module, "Client", slowly)
    with pytest.raises(BrokerUnavailable):
        connection.client(Deadline(0.01))
    connection.close()
    assert not built.retired.is_set()
    go_on.set()
    assert built.retired.wait(5.0)


def test_use_after_close_is_unavailable(connection: Connection, use: Use) -> None:
    first = use()
    connection.close()
    assert first.retired.is_set()
    with pytest.raises(BrokerUnavailable, match="closed"):
        use()


def _refuse(_: Mapping[str, object]) -> Dummy:
    raise vendor.KafkaTimeoutError("nobody there")
