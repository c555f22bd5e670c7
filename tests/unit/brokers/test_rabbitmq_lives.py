"""Which life of a stream its oldest message belongs to."""

import pika
import pytest

from duebridge_connectors.rabbitmq.source.inbox import RawMessage
from duebridge_connectors.rabbitmq.source.lives import StreamLives
from tests.support.contract.source_under_test import Memory


def oldest(offset: int, body: bytes = b"body", **properties: object) -> RawMessage:
    """A message as it comes off the wire: class, weight, size of the body, properties."""
    given = pika.BasicProperties(headers={"x-stream-offset": offset}, **properties)
    header = bytes(4) + len(body).to_bytes(8) + b"".join(given.encode())
    return RawMessage(1, b"key", header, body)


@pytest.mark.parametrize(
    ("before", "now", "number"),
    [
        (oldest(0), oldest(0), 0),
        (oldest(0), oldest(700), 0),  # its beginning was cut
        (oldest(700), oldest(0), 1),
        (oldest(0), oldest(0, b"other"), 1),
        (oldest(0, message_id="a"), oldest(0, message_id="b"), 1),
        (oldest(0, timestamp=1), oldest(0, timestamp=2), 1),
        (oldest(2**32), oldest(2**32 + 1, b"other"), 0),
        (oldest(2**32), oldest(2**32, b"other"), 1),
    ],
)
def test_oldest_message_tells_the_lives_of_a_stream_apart(
    before: RawMessage, now: RawMessage, number: int
) -> None:
    positions = Memory()
    lives = StreamLives(positions, "b:q")
    known = lives.present(lives.known(), before)
    positions.write(known.log, 2**32 + 5)

    found = lives.present(lives.known(), now)
    assert found.number == number
    assert found.log == ("b:q@1" if number else "b:q")
    assert found.position == (None if number else 2**32 + 5)
    assert lives.known() == found
    assert lives.present(lives.known(), now) == found


def test_stream_that_was_read_before_its_first_message_was_noted_stays_the_same() -> None:
    positions = Memory()
    positions.write("b:q", 7)
    lives = StreamLives(positions, "b:q")

    assert lives.present(lives.known(), oldest(3)).position == 7
    assert lives.present(lives.known(), oldest(0)).number == 1
