"""What a Kafka source makes of records, with both clients, on the real broker."""

import time
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka.codec import has_gzip, has_lz4, has_snappy, has_zstd

from duebridge.envelope import Target
from duebridge.errors import ConfigError
from duebridge.ports.source import Arrival
from tests.support.contract.source_under_test import (
    WITHIN_S,
    bodies,
    is_quiet,
    numbered,
    received,
    settled,
)
from tests.support.kafka.kafka_sources import CLIENTS, KafkaSources
from tests.support.servers import wait_until

FOR_GOOD = {"retention.ms": "-1"}  # records of so old a time would be cut at any moment
CODECS = {"gzip": has_gzip, "snappy": has_snappy, "lz4": has_lz4, "zstd": has_zstd}


def taken(broker: KafkaSources, topic: str, count: int) -> list[Arrival]:
    with closing(broker.open(topic)) as source:
        found = settled(source, count)
        assert is_quiet(source)
    return found


def test_receive_keeps_key_body_headers_and_time_to_the_byte(broker: KafkaSources) -> None:
    topic = broker.create(**FOR_GOOD)
    headers: list[tuple[str, bytes | None]] = [
        ("a", b"\x00\xff"),
        ("A", b""),
        ("a", None),
        ("héader", "ü".encode("latin-1")),
    ]
    broker.put(topic, b"\xff\x00body", b"\x80key", headers=headers, timestamp=1_700_000_000_123)
    broker.put(topic, None, b"gone")
    broker.put(topic, b"")
    broker.flush()
    first, tombstone, empty = taken(broker, topic, 3)
    assert (first.body, first.key) == (b"\xff\x00body", b"\x80key")
    assert list(first.headers) == headers
    assert first.sent_at_ms == 1_700_000_000_123
    assert (tombstone.body, tombstone.key, tombstone.headers) == (None, b"gone", ())
    assert (empty.body, empty.key) == (b"", None)


def test_receive_names_messages_by_offset_and_time_and_places_them(broker: KafkaSources) -> None:
    topic = broker.create(**FOR_GOOD)
    broker.put(topic, b"0", timestamp=1_700_000_000_000)
    broker.put(topic, b"1", timestamp=1_700_000_000_001)
    broker.flush()
    found = taken(broker, topic, 2)
    assert [each.id for each in found] == [
        f"orders:{topic}:0:0:1700000000000",
        f"orders:{topic}:0:1:1700000000001",
    ]
    (log,) = {each.place.log for each in found if each.place}
    described = broker.topics._admin.describe_topics([topic])
    assert log.startswith(f"orders/{topic}/")
    assert described[0]["topic_id"] is not None
    assert [(each.place.epoch, each.place.offset) for each in found if each.place] == [
        (0, 0),
        (0, 1),
    ]


def test_both_clients_give_a_message_the_same_id_and_place(kafka_bootstrap: str) -> None:
    with closing(KafkaSources(kafka_bootstrap, CLIENTS[0])) as one:
        topic = one.create()
        one.send(topic, numbered(10))
        with closing(one.open(topic)) as source:
            first: list[Arrival] = []
            while len(first) < 10:
                first += received(source)
        other = KafkaSources(kafka_bootstrap, CLIENTS[1])
        second = taken(other, topic, 10)
        other.close()
    assert [(each.id, each.place) for each in first] == [(each.id, each.place) for each in second]


def test_receive_skips_what_a_transaction_took_back(broker: KafkaSources) -> None:
    topic = broker.create()
    config: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "transactional.id": topic}
    producer = Producer(config)
    producer.init_transactions(30)
    for number, is_committed in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce(topic, str(number).encode())
        producer.flush(30)
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    with closing(broker.open(topic)) as source:
        assert bodies(settled(source, 2)) == [b"0", b"2"]
        # The end of a transaction is in the log, too, and nothing waits behind it.
        wait_until(lambda: source.receive(0.05) == [] and source.lag() == 0, "no lag")


@pytest.mark.parametrize("codec", CODECS)
def test_receive_of_compressed_batches_begins_in_their_middle(
    broker: KafkaSources, codec: str
) -> None:
    if broker.client == "kafka-python" and not CODECS[codec]():
        pytest.skip(f"{codec} is not installed")  # the next test
    topic = broker.create()
    sent = numbered(100, 200)
    send_compressed(broker, topic, codec, sent)
    with closing(broker.open(topic, batch=30)) as source:
        first = settled(source, 30)
    with closing(broker.open(topic)) as source:
        rest = settled(source, 100 - len(first))
    assert bodies([*first, *rest]) == sent


@pytest.mark.parametrize("codec", [name for name in CODECS if not CODECS[name]()])
def test_receive_of_a_codec_that_is_not_installed_says_so(kafka_bootstrap: str, codec: str) -> None:
    with closing(KafkaSources(kafka_bootstrap, "kafka-python")) as broker:
        topic = broker.create()
        send_compressed(broker, topic, codec, numbered(10, 200))
        with closing(broker.open(topic)) as source, pytest.raises(ConfigError, match=codec):
            source.receive(WITHIN_S)


def send_compressed(broker: KafkaSources, topic: str, codec: str, sent: list[bytes]) -> None:
    config: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "compression.type": codec}
    producer = Producer({**config, "linger.ms": 50})
    for body in sent:
        producer.produce(topic, body)
    producer.flush(30)


def test_receive_of_a_message_above_the_fetch_size_returns_it(broker: KafkaSources) -> None:
    topic = broker.create()
    large = bytes(900_000)
    broker.send(topic, [b"before", large, b"after"])
    with closing(broker.open(topic, in_hand_bytes=256 * 1024, batch_bytes=1000)) as source:
        assert bodies(settled(source, 3)) == [b"before", large, b"after"]


def test_questions_are_answered_while_a_fetch_waits_for_records(broker: KafkaSources) -> None:
    topic = broker.create()
    with closing(broker.open(topic)) as source:
        assert is_quiet(source)
        found = set()
        for _ in range(10):
            source.receive(0.2)
            consumer: Any = source._consumer  # type: ignore[attr-defined]
            found.add(consumer.ask_topic().answer(WITHIN_S))
    assert len(found) == 1


@pytest.mark.parametrize("count", [3, 300])
def test_topic_made_anew_under_a_stopped_intake_is_read_from_its_beginning(
    broker: KafkaSources, count: int
) -> None:
    topic = broker.create()
    broker.send(topic, numbered(100))
    with closing(broker.open(topic)) as source:
        old = settled(source, 100)
    remake(broker, topic)
    new = [b"new %d" % number for number in range(count)]
    broker.send(topic, new)
    with closing(broker.open(topic)) as source:
        found = settled(source, count)
    assert bodies(found) == new
    assert {each.place.log for each in found if each.place}.isdisjoint(
        {each.place.log for each in old if each.place}
    )


@pytest.mark.parametrize("count", [3, 300])
def test_topic_made_anew_under_a_running_intake_loses_nothing(
    broker: KafkaSources, count: int
) -> None:
    topic = broker.create()
    broker.send(topic, numbered(100))
    new = [b"new %d" % number for number in range(count)]
    with closing(broker.open(topic)) as source:
        settled(source, 100)
        remake(broker, topic)
        broker.send(topic, new)
        missing = set(new)
        give_up_at = time.monotonic() + 40
        while missing:
            assert time.monotonic() < give_up_at, f"{len(missing)} of {count} never came"
            missing -= set(bodies(settled(source, 1)))
        broker.send(topic, [b"last"])
        while b"last" not in bodies(settled(source, 1)):
            pass


def remake(broker: KafkaSources, topic: str) -> None:
    """Delete the topic and make it anew, as a deployment does."""
    target = Target("kafka", topic=topic)
    broker.topics.delete(target)
    broker.topics.create(target)
