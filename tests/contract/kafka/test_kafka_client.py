"""The parts of kafka-python without a public name still do what the connector wants of them."""

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery, Verdict
from duebridge_connectors.kafka.attempt import Deadline
from duebridge_connectors.kafka.errors import RequestFailed
from duebridge_connectors.kafka.kafka_python.attempt import KafkaPythonAttempt
from duebridge_connectors.kafka.kafka_python.client import KafkaPythonClient
from duebridge_connectors.kafka.settings import producer_config
from tests.support.contract.broker_under_test import delivery
from tests.support.kafka.kafka_broker import KafkaBroker
from tests.support.servers import free_port, silent_listener

from kafka import errors as vendor  # isort: skip

WITHIN_S = 30.0


@pytest.fixture(scope="module")
def broker(kafka_bootstrap: str) -> Iterator[KafkaBroker]:
    with closing(KafkaBroker(kafka_bootstrap)) as broker:
        yield broker


def connect(*servers: str, deadline_s: float = 15.0) -> KafkaPythonClient:
    return KafkaPythonClient(producer_config({"bootstrap_servers": list(servers)}, deadline_s))


@pytest.fixture
def client(kafka_bootstrap: str) -> Iterator[KafkaPythonClient]:
    client = connect(kafka_bootstrap)
    yield client
    client.retire(0)


def test_ask_for_metadata_never_creates_topics(client: KafkaPythonClient) -> None:
    assert client._net.cluster.metadata_request().allow_auto_topic_creation is False


def test_look_up_a_topic_makes_it_known(client: KafkaPythonClient, target: Target) -> None:
    topic = str(target.topic)
    assert not client.knows(topic)
    assert client.look_up({topic}, WITHIN_S) == {topic: None}
    assert client.knows(topic)


def test_look_up_a_missing_topic_tells_and_does_not_ask_again(client: KafkaPythonClient) -> None:
    topic = secrets.token_hex()
    refusal = client.look_up({topic}, WITHIN_S)[topic]
    assert refusal is not None
    assert refusal.outcome.error_class == "UnknownTopicOrPartitionError"
    client.refresh(WITHIN_S)
    assert topic not in client._net.cluster._topics


def test_look_up_a_deleted_topic_tells_and_does_not_ask_again(
    client: KafkaPythonClient, broker: KafkaBroker
) -> None:
    target = broker.missing_target()
    broker.create(target)
    topic = str(target.topic)
    client.look_up({topic}, WITHIN_S)
    broker.delete(target)
    client.refresh(WITHIN_S)
    assert not client.knows(topic)
    assert client.look_up({topic}, WITHIN_S)[topic] is not None
    client.refresh(WITHIN_S)
    assert topic not in client._net.cluster._topics


def test_ping_while_publishing_without_pause_is_answered(
    client: KafkaPythonClient, target: Target
) -> None:
    # With one request in flight at most, the leader's connection never has room for a question.
    client.look_up({str(target.topic)}, WITHIN_S)
    done = threading.Event()
    publishing = threading.Thread(target=_publish_until, args=(client, delivery(target), done))
    publishing.start()
    try:
        for _ in range(50):
            client.ping(WITHIN_S)
    finally:
        done.set()
        publishing.join()


def test_ping_with_one_server_absent_is_answered_by_the_other(kafka_bootstrap: str) -> None:
    client = connect(f"127.0.0.1:{free_port()}", kafka_bootstrap)
    try:
        for _ in range(5):
            client.ping(WITHIN_S)
    finally:
        client.retire(0)


@pytest.mark.parametrize("first", ["dead", "silent"])
def test_connect_with_a_server_that_fails_first_asks_the_other(
    kafka_bootstrap: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with silent_listener() as silent:
        port = {"dead": free_port(), "silent": silent}[first]
        monkeypatch.setattr("random.choice", lambda found: _with_port(found, port) or found[0])
        connect(f"127.0.0.1:{port}", kafka_bootstrap, deadline_s=8.0).retire(0)


def test_send_a_batch_that_is_too_large_as_a_whole_is_refused_without_a_second_request(
    client: KafkaPythonClient, broker: KafkaBroker
) -> None:
    target = broker.missing_target()
    topic = str(target.topic)
    broker.create(target, configs={"max.message.bytes": "1000"})
    client.look_up({topic}, WITHIN_S)
    with client.turn:
        client._producer._accumulator.muted.add((topic, 0))  # until all are in one batch
        futures = [client.send(delivery(target, body=bytes(100))) for _ in range(20)]
        client._producer._accumulator.muted.clear()
        client._producer._sender.wakeup()
    for future in futures:
        with pytest.raises(vendor.MessageSizeTooLargeError):
            future.get(WITHIN_S)


@pytest.mark.parametrize("where", ["producer", "partitioner"])
def test_send_while_the_topic_leaves_the_metadata_rejects_nothing(
    client: KafkaPythonClient, broker: KafkaBroker, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = broker.missing_target()
    broker.create(target)
    client.look_up({str(target.topic)}, WITHIN_S)
    holder, name = client._producer, "_partition"
    if where == "partitioner":
        holder, name = client._producer.config["partitioner"], "partition"
    call = getattr(holder, name)

    def losing(*given: Any) -> Any:
        monkeypatch.undo()
        broker.delete(target)
        client.refresh(WITHIN_S)
        return call(*given)

    monkeypatch.setattr(holder, name, losing)
    attempt = KafkaPythonAttempt([delivery(target), delivery(target)], Deadline(WITHIN_S))
    with client.turn:
        attempt._send(client, [0, 1])
    assert [each.verdict for each in attempt.outcomes] == [Verdict.UNAVAILABLE] * 2
    assert {each.error_message for each in attempt.outcomes} == {
        f"the client has just lost topic {target.topic}"
    }


def test_retire_with_a_record_under_way_ends_it_as_an_error(
    client: KafkaPythonClient, target: Target
) -> None:
    client.look_up({str(target.topic)}, WITHIN_S)
    client._producer._accumulator.muted.add((target.topic, 0))  # it will never go out
    future = client.send(delivery(target))
    client.retire(0)
    assert not client.is_alive()
    assert isinstance(future.exception, vendor.IllegalStateError)


def test_use_after_retirement_sends_nothing(client: KafkaPythonClient, target: Target) -> None:
    client.look_up({str(target.topic)}, WITHIN_S)
    client.retire(0)
    client.retire(0)
    with pytest.raises(vendor.IllegalStateError):
        client.send(delivery(target))
    with pytest.raises(RequestFailed):
        client.ping(WITHIN_S)


def test_connect_to_nobody_raises_and_leaves_nothing_open() -> None:
    with pytest.raises(vendor.KafkaTimeoutError):
        KafkaPythonClient(producer_config({"bootstrap_servers": [f"127.0.0.1:{free_port()}"]}, 0.5))


def _with_port(found: Sequence[Any], port: int) -> Any:
    return next((each for each in found if getattr(each, "port", None) == port), None)


def _publish_until(client: KafkaPythonClient, given: Delivery, done: threading.Event) -> None:
    while not done.is_set():
        futures = [client.send(given) for _ in range(20)]
        futures[-1].get(WITHIN_S)
