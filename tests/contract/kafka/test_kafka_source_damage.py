"""Records that a client cannot read, and clients that fail: nothing blocks, nothing is passed."""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Arrival, Source
from duebridge_connectors.kafka.source.kafka_python.decompression import MOST_BYTES
from tests.support.contract.source_under_test import (
    WAIT_S,
    WITHIN_S,
    bodies,
    is_quiet,
    numbered,
    received,
    settled,
)
from tests.support.kafka.crafted import crafted, produce
from tests.support.kafka.kafka_sources import KafkaSources
from tests.support.servers import wait_until


class NoText(str):
    """A header's name whose bytes are no UTF-8."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff-name"


GZIP, ZSTD, RECORDS_AT = 1, 4, 61
BAD = [("x-delay", b"1"), (NoText("name"), b"\xfe"), ("empty", b"")]


def send(broker: KafkaSources, topic: str, headers: Sequence[Any], **config: Any) -> None:
    """Send bodies 0, 1, ..., in one batch if they are few."""
    settings = {"bootstrap_servers": broker.bootstrap, "linger_ms": 100, **config}
    with closing(KafkaProducer(**settings)) as producer:
        for number, each in enumerate(headers):
            producer.send(topic, b"%d" % number, b"key %d" % number, headers=each)
        producer.flush(30)


def offsets(arrivals: Sequence[Arrival]) -> list[int]:
    return [each.place.offset for each in arrivals if each.place is not None]


def settle_one(source: Source) -> list[Arrival]:
    batch = source.receive(0.05)
    source.settle(batch)
    return batch


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_receive_of_a_header_name_that_is_no_text_marks_the_message_unreadable(
    broker: KafkaSources, codec: str | None
) -> None:
    topic = broker.create()
    good = [("name", b"value")]
    send(broker, topic, [good, good, BAD, good, BAD, BAD, good], compression_type=codec)
    with closing(broker.open(topic)) as source:
        found = settled(source, 7)
        assert is_quiet(source)
    assert bodies(found) == numbered(7)
    assert [number for number, each in enumerate(found) if each.unreadable] == [2, 4, 5]
    assert [each.key for each in found] == [b"key %d" % number for number in range(7)]
    assert offsets(found) == [*range(7)]
    assert all(each.unreadable.startswith("headers: ") for each in found if each.unreadable)
    assert list(found[6].headers) == good
    if broker.client == "kafka-python":
        escaped = [("x-delay", b"1"), ("\\xff-name", b"\xfe"), ("empty", b"")]
        assert list(found[2].headers) == escaped


def test_receive_of_unreadable_messages_batch_after_batch_returns_each_once(
    broker: KafkaSources,
) -> None:
    topic = broker.create()
    send(broker, topic, [BAD if number % 3 else [] for number in range(100)])
    with closing(broker.open(topic, batch=7)) as source:
        first = settled(source, 40)
    with closing(broker.open(topic, batch=7)) as source:
        rest = settled(source, 100 - len(first))
        assert is_quiet(source)
    assert bodies([*first, *rest]) == numbered(100)
    assert [bool(each.unreadable) for each in [*first, *rest]] == [n % 3 > 0 for n in range(100)]


def test_receive_of_unreadable_messages_skips_what_a_transaction_took_back(
    broker: KafkaSources,
) -> None:
    topic = broker.create()
    settings = {"bootstrap_servers": broker.bootstrap, "transactional_id": topic}
    with closing(KafkaProducer(**settings)) as producer:
        producer.init_transactions()
        for number, is_committed in enumerate((True, False, True, False)):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, headers=BAD)
            producer.flush(30)
            producer.commit_transaction() if is_committed else producer.abort_transaction()
    with closing(broker.open(topic)) as source:
        found = settled(source, 2)
        assert is_quiet(source)
    assert bodies(found) == [b"0", b"2"]
    assert all(each.unreadable for each in found)


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize(("deltas", "batch"), [([5], 20), ([30, 1], 20), ([30, 1, 2, 3], 1)])
def test_receive_of_a_record_that_states_a_later_offset_marks_it_and_loses_none_after_it(
    broker: KafkaSources, deltas: Sequence[int], holds: bool, batch: int
) -> None:
    topic = broker.create()
    broker.send(topic, numbered(10))
    with_it = [b"false", b"1", b"2", b"3"][: len(deltas)]
    produce(broker.bootstrap, topic, crafted(deltas, with_it))
    places: dict[int, Arrival] = {}

    def receive(source: Source, count: int) -> list[Arrival]:
        """librdkafka may read a log again from its beginning: the places are the same."""
        batch: list[Arrival] = []
        while len(places) < count:
            batch += received(source)
            for each in batch:
                places.setdefault(offsets([each])[0], each)
        return batch

    with closing(broker.open(topic, batch=batch)) as source:
        first = receive(source, 10 + len(deltas))
        if holds:  # a client resumes where it believes to be
            source.keep_alive()
        source.settle(first)
        wait_until(lambda: settle_one(source) == [] and source.lag() == 0, "no lag")
        broker.send(topic, numbered(50))
        source.settle(receive(source, 60 + len(deltas)))
    with closing(broker.open(topic)) as source:
        broker.send(topic, [b"last"])
        source.settle(receive(source, 61 + len(deltas)))
        assert is_quiet(source)
    found = list(places.values())
    assert bodies(found) == [*numbered(10), *with_it, *numbered(50), b"last"]
    assert offsets(found) == [*range(len(found))]
    assert [number for number, each in enumerate(found) if each.unreadable] == [10]
    assert found[10].unreadable.startswith("offset: expected")


def test_receive_of_a_false_offset_after_a_gap_marks_one_record(broker: KafkaSources) -> None:
    topic = broker.create()
    broker.send(topic, numbered(20))
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.delete_records({TopicPartition(topic, 0): 20})
    produce(broker.bootstrap, topic, crafted([50], [b"at the beginning"]))
    settings = {"bootstrap_servers": broker.bootstrap, "transactional_id": topic}
    with closing(KafkaProducer(**settings)) as producer:
        producer.init_transactions()
        for _ in range(3):  # the mark of its end has an offset, too
            producer.begin_transaction()
            producer.send(topic, b"aborted")
            producer.flush(30)
            producer.abort_transaction()
    produce(broker.bootstrap, topic, crafted([50], [b"after aborted ones"]))
    with closing(broker.open(topic)) as source:
        found = settled(source, 2)
        assert is_quiet(source)
        broker.send(topic, [b"last"])
        found += settled(source, 1)
    assert bodies(found) == [b"at the beginning", b"after aborted ones", b"last"]
    assert [bool(each.unreadable) for each in found] == [True, True, False]
    places = [20, 21 if broker.client == "librdkafka" else 27, 28]
    assert offsets(found) == places


def test_receive_after_retention_passed_the_group_tells_which_offset_is_gone(
    broker: KafkaSources, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.create()
    broker.send(topic, numbered(5))
    with closing(broker.open(topic)) as source:
        settled(source, 5)
    broker.send(topic, numbered(10))
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.delete_records({TopicPartition(topic, 0): 12})
    with closing(broker.open(topic)) as source:
        assert offsets(settled(source, 3)) == [12, 13, 14]
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len([each for each in told if topic in each and "offset 5 " in each]) == 1


def test_receive_of_batches_that_hold_too_much_returns_them_as_they_came_and_goes_on(
    kafka_bootstrap: str,
) -> None:
    bomb = crafted([0, 1], [bytes(MOST_BYTES), b"rest"], GZIP)
    large = crafted([0], [bytes(MOST_BYTES // 2)], GZIP)
    with closing(KafkaSources(kafka_bootstrap, "kafka-python")) as broker:
        topic = broker.create()
        for batch in (bomb, large, large, large):
            produce(broker.bootstrap, topic, batch)
        broker.send(topic, [b"last"])
        with closing(broker.open(topic)) as source:
            found = settled(source, 5)
            assert is_quiet(source)
    assert offsets(found) == [1, 2, 3, 4, 5]
    assert [bool(each.unreadable) for each in found] == [True, False, False, False, False]
    assert (found[0].body or b"")[RECORDS_AT:] == bomb[RECORDS_AT:]
    assert [len(each.body or b"") for each in found[1:]] == [*[MOST_BYTES // 2] * 3, 4]


def test_receive_of_a_batch_that_librdkafka_cannot_read_says_where_it_stands_still(
    kafka_bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(KafkaSources(kafka_bootstrap, "librdkafka")) as broker:
        topic = broker.create()
        broker.send(topic, [b"good"])
        produce(broker.bootstrap, topic, crafted([0], [bytes(2 * MOST_BYTES)], ZSTD))
        where = f"topic {topic}, partition 0: cannot be read from offset 1 on"
        with closing(broker.open(topic)) as source:
            settled(source, 1)
            until(source, where)
            with pytest.raises(
                BrokerUnavailable, match=where
            ):  # connected again, it looks no better
                source.receive(0.0)
    assert sum(where in each.message for each in caplog.records) == 1


def until(source: Source, said: str) -> None:
    """Receive until it fails with these words."""
    give_up_at = time.monotonic() + WITHIN_S
    while time.monotonic() < give_up_at:
        try:
            assert not source.receive(WAIT_S)
        except BrokerUnavailable as error:
            if said in str(error):
                return
    raise AssertionError(f"not said within {WITHIN_S:g} s: {said}")


def test_receive_that_fails_with_records_in_hand_brings_them_again(
    broker: KafkaSources, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.create()
    broker.send(topic, numbered(10))
    with closing(broker.open(topic, batch=5)) as source:
        first = settled(source, 1)
        fail_once(source, monkeypatch, "take")
        with pytest.raises(MemoryError, match="take"):
            source.receive(WITHIN_S)
        broker.send(topic, [b"last"])
        found = settled(source, 11 - len(first))
    assert bodies([*first, *found]) == [*numbered(10), b"last"]


def test_settle_that_fails_brings_the_messages_again(
    broker: KafkaSources, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.create()
    broker.send(topic, numbered(10))
    with closing(broker.open(topic, batch=5)) as source:
        batch = received(source)
        fail_once(source, monkeypatch, "commit", before=True)
        with pytest.raises(MemoryError, match="commit"):
            source.settle(batch)
        assert bodies(settled(source, 10)) == numbered(10)


def fail_once(
    source: Any, monkeypatch: pytest.MonkeyPatch, name: str, *, before: bool = False
) -> None:
    """Have the client's next call of this name fail, after it has done its work or before."""
    consumer = source._consumer
    call = getattr(consumer, name)

    def failing(*given: Any) -> None:
        if before or call(*given):
            monkeypatch.undo()
            raise MemoryError(name)

    monkeypatch.setattr(consumer, name, failing)
