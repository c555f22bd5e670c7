"""What the connector relies on in librdkafka and its binding, on a real broker."""

import ctypes
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import Verdict
from duebridge_connectors.kafka.librdkafka.client import LibrdkafkaClient, RequestFailed
from duebridge_connectors.kafka.librdkafka.settings import producer_config
from tests.support.contract.broker_under_test import delivery, verdicts
from tests.support.kafka.kafka_broker import KafkaBroker, LibrdkafkaBroker
from tests.support.servers import free_port, wait_until

PARTITIONS = 12

WITHIN_S = 30.0


@pytest.fixture(scope="module")
def broker(kafka_bootstrap: str) -> Iterator[LibrdkafkaBroker]:
    with closing(LibrdkafkaBroker(kafka_bootstrap)) as broker:
        yield broker


@pytest.fixture
def client(kafka_bootstrap: str) -> Iterator[LibrdkafkaClient]:
    client = LibrdkafkaClient(producer_config({"bootstrap_servers": [kafka_bootstrap]}, 15.0))
    yield client
    client.retire()


def make(broker: LibrdkafkaBroker, partitions: int = 1) -> Target:
    target = broker.missing_target()
    broker.create(target, partitions)
    return target


def test_publish_keys_by_either_client_puts_them_in_the_same_partitions(
    broker: LibrdkafkaBroker, kafka_bootstrap: str
) -> None:
    random = [secrets.token_bytes(length) for length in range(1, 40)]
    keys = [b"", *(b"order-%d" % n for n in range(100)), *random]
    found = []
    with closing(KafkaBroker(kafka_bootstrap)) as other:
        for opener in (broker, other):
            target = make(broker, PARTITIONS)
            with closing(opener.open(15.0)) as publisher:
                outcomes = publisher.publish([delivery(target, key=key) for key in keys])
            assert set(verdicts(outcomes)) == {Verdict.CONFIRMED}
            found.append(broker.partitions_of_keys(target))
    assert found[0] == found[1]
    assert found[0].keys() == set(keys)
    assert set(found[0].values()) == set(range(PARTITIONS))


def test_look_up_a_topic_makes_it_known(client: LibrdkafkaClient, broker: LibrdkafkaBroker) -> None:
    topic = str(make(broker).topic)
    assert not client.knows(topic)
    assert client.look_up({topic}, WITHIN_S) == {topic: None}
    assert client.knows(topic)


def test_look_up_a_missing_topic_tells_and_does_not_make_it_known(client: LibrdkafkaClient) -> None:
    topic = secrets.token_hex()
    refusal = client.look_up({topic}, WITHIN_S)[topic]
    assert refusal is not None
    assert refusal.outcome.error_class == "UNKNOWN_TOPIC_OR_PART"
    assert not client.knows(topic)


def test_ask_nobody_tells_why() -> None:
    client = LibrdkafkaClient(
        producer_config({"bootstrap_servers": [f"127.0.0.1:{free_port()}"]}, 15.0)
    )

    def is_told() -> bool:
        with pytest.raises(RequestFailed) as failed:
            client.ping(0.5)  # what the client has heard of by then
        return "Connection refused" in str(failed.value)

    wait_until(is_told, "the refusal", WITHIN_S)
    client.retire()


def test_ask_with_one_server_absent_is_answered_by_the_other(kafka_bootstrap: str) -> None:
    servers = [f"127.0.0.1:{free_port()}", kafka_bootstrap]
    client = LibrdkafkaClient(producer_config({"bootstrap_servers": servers}, 15.0))
    for _ in range(5):
        client.ping(WITHIN_S)
    client.retire()


def test_use_after_retirement_sends_nothing(client: LibrdkafkaClient) -> None:
    client.ping(WITHIN_S)
    client.retire()
    client.retire()
    assert client.has_ended
    client._thread.join(WITHIN_S)
    with pytest.raises(RequestFailed, match="ended"):
        client.ping(WITHIN_S)


def test_abandon_keeps_the_producer_from_ending(client: LibrdkafkaClient) -> None:
    before = sys.getrefcount(client._producer)
    for _ in range(100):
        client.abandon()
    assert sys.getrefcount(client._producer) > before + 90  # its thread takes and drops some, too
    for _ in range(100):
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(client._producer))


def test_an_answer_that_raises_does_not_silence_the_next(
    client: LibrdkafkaClient, broker: LibrdkafkaBroker
) -> None:
    target = make(broker)
    client.look_up(str(target.topic), WITHIN_S)
    is_heard = threading.Event()

    def answer(error: object, _: object) -> None:
        if is_heard.is_set():
            return
        is_heard.set()
        raise LookupError("a defect")

    client.send(delivery(target), answer)
    assert is_heard.wait(WITHIN_S)
    heard_again = threading.Event()
    client.send(delivery(target), lambda *_: heard_again.set())
    assert heard_again.wait(WITHIN_S)
