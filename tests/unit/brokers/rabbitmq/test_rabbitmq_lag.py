"""What a source of RabbitMQ says of the messages that wait in its queue."""

from types import SimpleNamespace
from typing import Any

import pytest

from duebridge_connectors.rabbitmq.source.lag import LagChannel


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
