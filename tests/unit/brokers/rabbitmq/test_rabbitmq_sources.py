"""Which life of a stream its oldest message belongs to, at any node; what waits in a queue."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pika
import pytest

from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.rabbitmq.source.inbox import RawMessage
from duebridge_connectors.rabbitmq.source.lag import LagChannel
from duebridge_connectors.rabbitmq.source.lives import StreamLife, StreamLives, offset_in
from tests.support.contract.source_under_test import Memory

SETTLED = 2**32 + 5


def at(offset: int, body: bytes = b"body", **properties: object) -> RawMessage:
    """A message as it comes off the wire: class, weight, size of the body, properties."""
    given = pika.BasicProperties(headers={"x-stream-offset": offset}, **properties)
    header = bytes(4) + len(body).to_bytes(8) + b"".join(given.encode())
    return RawMessage(1, b"key", header, body)


def node(*messages: RawMessage) -> Callable[[int], RawMessage]:
    """What a node answers that has these messages."""
    found = {offset_in(message): message for message in messages}

    def look(offset: int) -> RawMessage:
        if offset not in found:
            raise BrokerUnavailable(f"none at {offset}")
        return found[offset]

    return look


def read(positions: Memory, *messages: RawMessage) -> StreamLife:
    """Connect to a node that has these messages; all are settled."""
    lives = StreamLives(positions, "b:q")
    life = lives.present(lives.known(), messages[0], node(*messages))
    positions.write(life.log, SETTLED)
    return life


@pytest.mark.parametrize(
    ("before", "now", "number"),
    [
        (at(0), at(0), 0),
        (at(0), at(700), 0),  # its beginning was cut
        (at(0), at(0, b"other"), 1),
        (at(0, message_id="a"), at(0, message_id="b"), 1),
        (at(0, timestamp=1), at(0, timestamp=2), 1),
        (at(2**32), at(2**32 + 1, b"other"), 0),
        (at(2**32), at(2**32, b"other"), 1),
    ],
)
def test_oldest_message_tells_the_lives_of_a_stream_apart(
    before: RawMessage, now: RawMessage, number: int
) -> None:
    positions = Memory()
    read(positions, before)

    lives = StreamLives(positions, "b:q")
    found = lives.present(lives.known(), now, node())
    assert found.number == number
    assert found.log == ("b:q@1" if number else "b:q")
    assert found.position == (None if number else SETTLED)
    assert lives.known() == found
    assert lives.present(lives.known(), now, node()) == found


OLD = [at(offset, b"old %d" % offset) for offset in range(300)]
NEW = [at(offset, b"new %d" % offset) for offset in range(300)]


@pytest.mark.parametrize(
    ("reads", "numbers"),
    [
        # Nodes whose replicas begin at 0, 100 and 200: back and forth.
        ((OLD, OLD[100:], OLD, OLD[200:], OLD[100:], OLD), [0] * 6),
        ((OLD[100:], OLD, OLD[50:], OLD[200:], OLD, OLD[150:]), [0] * 6),
        # A replica that lags has the beginning only.
        ((OLD[:150], OLD[100:150], OLD[200:], OLD[:50], OLD[200:]), [0] * 5),
        # Recreated, long or short, whole or cut.
        ((OLD[100:], NEW), [0, 1]),
        ((OLD, OLD[100:], NEW[:50]), [0, 0, 1]),
        ((OLD, OLD[100:], NEW[50:]), [0, 0, 1]),
        ((OLD[100:], NEW[50:], NEW[80:], NEW), [0, 1, 1, 1]),
    ],
)
def test_lower_oldest_offset_begins_a_life_only_with_other_messages(
    reads: tuple[list[RawMessage], ...], numbers: list[int]
) -> None:
    positions = Memory()
    assert [read(positions, *messages).number for messages in reads] == numbers


def test_node_without_the_noted_message_leaves_the_life_as_it_was() -> None:
    positions = Memory()
    read(positions, *OLD[100:])
    noted = dict(positions.found)

    with pytest.raises(BrokerUnavailable, match="none at 100"):
        read(positions, *NEW[:50])
    assert positions.found == noted
    assert read(positions, *OLD[200:]).number == 0


def test_stream_that_was_read_before_its_first_message_was_noted_stays_the_same() -> None:
    positions = Memory()
    positions.write("b:q", 7)

    assert StreamLives(positions, "b:q").known().position == 7
    assert read(positions, *OLD[3:]).number == 0
    assert read(positions, *NEW).number == 1


class Asked:
    """A connection and channel that answer at once what the broker would."""

    is_open = True

    def __init__(self, messages: int, consumers: int) -> None:
        self._method = SimpleNamespace(message_count=messages, consumer_count=consumers)

    def channel(self, on_open_callback: Any) -> None:
        on_open_callback(self)

    def queue_declare(self, queue: str, *, passive: bool, callback: Any) -> None:
        assert (queue, passive) == ("q", True)
        callback(SimpleNamespace(method=self._method))


@pytest.mark.parametrize(
    ("messages", "consumers", "share"), [(7, 0, 7), (7, 1, 7), (7, 2, 4), (0, 3, 0)]
)
def test_lag_of_a_queue_is_shared_by_its_consumers(
    messages: int, consumers: int, share: int
) -> None:
    lag = LagChannel(Asked(messages, consumers), "q")
    assert lag.count is None
    lag.ask()
    assert lag.count == share
