"""What only RabbitMQ does to a source: it cancels, refuses, and sends ahead what is large."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pika
import pytest
from structlog.testing import capture_logs

from duebridge.errors import ConfigError, StoreUnavailable
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import LogPosition, SourcePlan
from duebridge_connectors.rabbitmq.source import rabbit_source
from duebridge_connectors.rabbitmq.source.inbox import RawMessage
from duebridge_connectors.rabbitmq.source.lives import mark_of
from duebridge_connectors.rabbitmq.source.prefetch import Prefetch
from duebridge_connectors.rabbitmq.source.rabbit_source import open_source
from tests.support.contract.source_under_test import (
    WITHIN_S,
    Memory,
    bodies,
    gathered,
    is_quiet,
    numbered,
    raises_soon,
    received,
    settled,
)
from tests.support.rabbitmq.rabbitmq_queues import BROKER, HEARTBEAT_S, RabbitQueues
from tests.support.servers import wait_until

MIB = 1024 * 1024


@pytest.fixture
def queues(rabbitmq_url: str) -> Iterator[RabbitQueues]:
    with closing(RabbitQueues(rabbitmq_url)) as queues:
        yield queues


@pytest.fixture
def streams(rabbitmq_url: str) -> Iterator[RabbitQueues]:
    with closing(RabbitQueues(rabbitmq_url, "stream")) as streams:
        yield streams


# Cancelled, refused.


def test_receive_from_a_queue_that_is_deleted_raises_then_says_that_it_is_missing(
    queues: RabbitQueues,
) -> None:
    name = queues.create()
    with closing(queues.open(name)) as source:
        source.receive(0.1)
        queues.channel.queue_delete(name)
        with pytest.raises(BrokerUnavailable, match="cancelled the consumer"):
            source.receive(WITHIN_S)
        with pytest.raises(ConfigError, match=f"'{name}' does not exist: declare it"):
            source.receive(WITHIN_S)
        queues.channel.queue_declare(name, durable=True)
        queues.send(name, [b"again"])

        def comes() -> bool:
            try:
                return bodies(source.receive(0.5)) == [b"again"]
            except (BrokerUnavailable, ConfigError):
                return False

        wait_until(comes, "a message of the queue that was made anew")


def test_receive_from_a_queue_in_exclusive_use_raises_config_error(queues: RabbitQueues) -> None:
    name = queues.create()
    queues.channel.basic_consume(name, lambda *_: None, exclusive=True)
    with closing(queues.open(name)) as source, pytest.raises(ConfigError, match="exclusive"):
        source.receive(WITHIN_S)


def test_receive_with_a_wrong_password_raises_broker_unavailable(rabbitmq_url: str) -> None:
    url = rabbitmq_url.replace("guest:guest", "guest:wrong")
    plan = SourcePlan("intake", BROKER, {"queue": "any"})
    with (
        closing(open_source({"url": url}, plan, Memory())) as source,
        pytest.raises(BrokerUnavailable, match="ACCESS_REFUSED"),
    ):
        source.receive(WITHIN_S)


# Settling.


def test_settle_over_another_connection_sends_no_acknowledgement(queues: RabbitQueues) -> None:
    """A delivery tag means another message there."""
    name = queues.create()
    queues.send(name, numbered(4))
    with closing(queues.open(name, batch=2)) as source:
        old = gathered(source, 2)
        queues.disconnect(source)
        raises_soon(source, BrokerUnavailable)
        assert bodies(gathered(source, 2)) == bodies(old)
        with pytest.raises(BrokerUnavailable):
            source.settle(old)
    with closing(queues.open(name)) as source:
        assert bodies(settled(source, 4)) == numbered(4)


def test_settle_later_messages_first_forgets_only_those(queues: RabbitQueues) -> None:
    name = queues.create()
    queues.send(name, numbered(6))
    with closing(queues.open(name)) as source:
        batch = gathered(source, 6)
        source.settle(batch[4:])
        source.settle(batch[:2])
    with closing(queues.open(name)) as source:
        assert bodies(settled(source, 2)) == numbered(6)[2:4]
        assert is_quiet(source)


# Large messages.


def test_prefetch_shrinks_at_once_and_grows_when_all_is_sent() -> None:
    prefetch = Prefetch(1000, 16 * MIB)
    assert prefetch.count == 256
    assert not prefetch.follow(300, waiting=100)
    while not prefetch.follow(300, waiting=256):
        assert prefetch.count == 256
    assert prefetch.count >= 512
    assert prefetch.follow(MIB, waiting=1)
    assert prefetch.count == 16
    for _ in range(100):
        prefetch.follow(300, waiting=prefetch.count)
    assert prefetch.count == 1000


def test_prefetch_of_messages_beyond_the_limit_is_one() -> None:
    prefetch = Prefetch(1000, MIB)
    prefetch.follow(128 * MIB, waiting=16)
    assert prefetch.count == 1


def test_receive_mixed_sizes_loses_and_repeats_nothing(queues: RabbitQueues) -> None:
    name = queues.create()
    sent = [*numbered(400), *numbered(20, 200_000), *numbered(400), *numbered(20, 200_000)]
    queues.send(name, sent)
    with closing(queues.open(name, batch=50, in_hand_bytes=2 * MIB)) as source:
        assert bodies(settled(source, len(sent))) == sent
        assert is_quiet(source)


def test_keep_alive_with_more_than_the_limit_under_way_holds_little_and_stays_connected(
    queues: RabbitQueues,
) -> None:
    name, sent = queues.create(), [*numbered(100), *numbered(60, MIB)]
    queues.send(name, sent)
    with closing(queues.open_direct(name, batch=10, in_hand_bytes=16 * MIB)) as source:
        batch = received(source)
        consumer: Any = vars(source)["_consumer"]
        most, until = 0, time.monotonic() + 3 * HEARTBEAT_S + 5
        while time.monotonic() < until:
            source.keep_alive()
            most = max(most, consumer.held.size)
            threading.Event().wait(0.01)
        source.settle(batch)
        found = settled(source, len(sent) - len(batch))
        assert vars(source)["_consumer"] is consumer  # still the first connection
    assert 16 * MIB <= most <= 18 * MIB
    assert bodies([*batch, *found]) == sent


# Streams.


def test_receive_from_a_stream_gives_places_and_ids(streams: RabbitQueues) -> None:
    name = streams.create()
    streams.send(name, numbered(3))
    streams.channel.basic_publish("", name, b"3", pika.BasicProperties())
    with closing(streams.open(name)) as source:
        found = settled(source, 4)
    log = f"{BROKER}:{name}"
    assert [each.place for each in found] == [LogPosition(log, 0, offset) for offset in range(4)]
    assert [each.id for each in found] == [f"{log}:{offset}" for offset in range(4)]
    assert [each.message_id[:5] for each in found] == ["id-0-", "id-1-", "id-2-", ""]
    assert [each.headers for each in found] == [()] * 4
    assert streams.positions.found.keys() == {log, f"{log}#first"}
    assert streams.positions.found[log] == 3


@pytest.mark.parametrize("count", [0, 3, 9], ids=["empty", "shorter", "longer"])
def test_receive_from_a_stream_made_anew_begins_at_its_first_message(
    streams: RabbitQueues, count: int
) -> None:
    name = streams.create()
    streams.send(name, numbered(5))
    with closing(streams.open(name)) as source:
        before = settled(source, 5)
    streams.channel.queue_delete(name)
    streams.create(name)
    sent = [b"anew %d" % number for number in range(count)]
    streams.send(name, sent)
    with closing(streams.open(name)) as source:
        if not count:
            assert is_quiet(source)
            streams.send(name, sent := [b"late"])
        found = settled(source, len(sent))
    assert bodies(found) == sent
    assert not {each.id for each in before} & {each.id for each in found}
    assert {each.place.log for each in found if each.place} == {f"{BROKER}:{name}@1"}
    with closing(streams.open(name)) as source:
        assert is_quiet(source)
        streams.send(name, [b"next"])
        assert bodies(settled(source, 1)) == [b"next"]


def test_receive_from_a_stream_that_is_made_anew_while_it_is_read_begins_anew(
    streams: RabbitQueues,
) -> None:
    name = streams.create()
    streams.send(name, numbered(5))
    with closing(streams.open(name)) as source:
        settled(source, 5)
        streams.channel.queue_delete(name)
        streams.create(name)
        streams.send(name, [b"anew"])
        raises_soon(source, BrokerUnavailable)
        assert bodies(settled(source, 1)) == [b"anew"]


def send_plain(streams: RabbitQueues, name: str, sent: list[bytes]) -> None:
    for body in sent:
        streams.channel.basic_publish("", name, body, pika.BasicProperties(delivery_mode=2))


def note_oldest(streams: RabbitQueues, name: str, offset: int, body: bytes) -> None:
    """Note the oldest message of another node: each replica drops old segments by itself."""
    properties = pika.BasicProperties(headers={"x-stream-offset": offset})
    header = bytes(12) + b"".join(properties.encode())
    mark = mark_of(RawMessage(1, name.encode(), header, body))
    streams.positions.found[f"{BROKER}:{name}#first"] = mark


@pytest.mark.parametrize(
    ("noted", "life"), [(b"3", ""), (b"other", "@1")], ids=["same", "made anew"]
)
def test_receive_from_a_replica_that_begins_earlier_compares_the_message_that_was_noted(
    streams: RabbitQueues, noted: bytes, life: str
) -> None:
    name, sent = streams.create(), numbered(5)
    send_plain(streams, name, sent)
    with closing(streams.open(name)) as source:
        settled(source, 5)
    note_oldest(streams, name, 3, noted)
    send_plain(streams, name, [b"next"])
    expected = [*sent, b"next"] if life else [b"next"]
    with closing(streams.open(name)) as source:
        found = settled(source, len(expected))
        assert is_quiet(source)
    assert bodies(found) == expected
    assert {each.place.log for each in found if each.place} == {f"{BROKER}:{name}{life}"}


def test_receive_from_a_replica_that_lags_waits_for_the_message_that_was_noted(
    streams: RabbitQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbit_source, "LOOK_S", 1.0)
    name = streams.create()
    send_plain(streams, name, numbered(5))
    with closing(streams.open(name)) as source:
        settled(source, 5)
    note_oldest(streams, name, 7, b"7")
    with closing(streams.open(name)) as source:
        with pytest.raises(BrokerUnavailable, match="ends before offset 7"):
            source.receive(WITHIN_S)
        send_plain(streams, name, numbered(8)[5:])
        found = settled(source, 3)
    assert bodies(found) == numbered(8)[5:]
    assert {each.place.log for each in found if each.place} == {f"{BROKER}:{name}"}


def test_receive_from_a_stream_whose_retention_passed_the_position_tells_what_nobody_read(
    streams: RabbitQueues,
) -> None:
    kept = {"x-max-length-bytes": 20_000, "x-stream-max-segment-size-bytes": 5_000}
    name = streams.create(**kept)
    send_plain(streams, name, numbered(5))
    with capture_logs() as logs:
        for sent in (5, 300):  # a stream that was read to its end lacks nothing
            with closing(streams.open(name)) as source:
                settled(source, 5)
                offset = streams.positions.found[f"{BROKER}:{name}"]
            send_plain(streams, name, [bytes(400)] * sent)
        with closing(streams.open(name)) as source:
            (first, *_) = received(source)
    assert first.place is not None
    assert first.place.offset > offset + 1
    (found,) = [each for each in logs if each["event"] == "rabbitmq_stream_dropped_unread"]
    assert (found["first_offset"], found["last_offset"]) == (offset + 1, first.place.offset - 1)


def test_receive_from_a_stream_from_next_on_skips_what_was_there(streams: RabbitQueues) -> None:
    name = streams.create()
    streams.send(name, [b"old"])
    with closing(streams.open(name, source={"offset": "next"})) as source:
        assert is_quiet(source)
        streams.send(name, [b"new"])
        assert bodies(settled(source, 1)) == [b"new"]
        streams.send(name, [b"newer"])
    with closing(streams.open(name, source={"offset": "next"})) as source:
        assert bodies(settled(source, 1)) == [b"newer"]


def test_receive_from_next_on_of_a_stream_made_anew_begins_at_its_first_message_however_often(
    streams: RabbitQueues,
) -> None:
    name, source_from_next = streams.create(), {"offset": "next"}
    with closing(streams.open(name, source=source_from_next)) as source:
        assert is_quiet(source)
        streams.send(name, [b"old"])
        settled(source, 1)
    with closing(streams.open(name, source=source_from_next)) as source:
        assert is_quiet(source)  # and has seen the oldest message
    streams.channel.queue_delete(name)
    streams.create(name)
    streams.send(name, [b"anew"])
    for take in (received, received, lambda source: settled(source, 1)):  # two that end before
        with closing(streams.open(name, source=source_from_next)) as source:
            assert bodies(take(source)) == [b"anew"]


def test_receive_from_a_queue_whose_message_bears_an_offset_gives_no_place(
    queues: RabbitQueues,
) -> None:
    """A program that read a stream may have sent it on, headers and all."""
    name = queues.create()
    properties = pika.BasicProperties(headers={"x-stream-offset": 2**40}, message_id="a")
    queues.channel.basic_publish("", name, b"body", properties)
    with closing(queues.open(name)) as source:
        (found,) = settled(source, 1)
    assert (found.place, found.id) == (None, "a")
    assert found.headers == (("x-stream-offset", 2**40),)


class Unreadable(Memory):
    def read(self, log: str) -> int | None:
        raise StoreUnavailable("no answer")


def test_receive_while_positions_cannot_be_read_raises_broker_unavailable(
    rabbitmq_url: str,
) -> None:
    plan = SourcePlan("intake", BROKER, {"queue": "any"})
    with (
        closing(open_source({"url": rabbitmq_url}, plan, Unreadable())) as source,
        pytest.raises(BrokerUnavailable, match="position"),
    ):
        source.receive(1)
