"""Asks how many messages of a queue wait, on a channel of its own, which a refusal may close."""

from time import monotonic
from typing import Any, Final

EVERY_S: Final = 2.0
KNOWN_FOR_S: Final = 30.0


class LagChannel:
    """`count` is the last answer, None once it is old."""

    def __init__(self, connection: Any, queue: str) -> None:
        self._queue = queue
        self._count = 0
        self._told_at = self._asked_at = float("-inf")
        self._channel: Any = None
        connection.channel(on_open_callback=self._on_open)

    @property
    def count(self) -> int | None:
        """The share of the messages that were ready; for any thread."""
        return self._count if monotonic() - self._told_at < KNOWN_FOR_S else None

    def ask(self) -> None:
        """Ask again if it is time; the answer comes later."""
        now = monotonic()
        if self._channel is None or not self._channel.is_open or now - self._asked_at < EVERY_S:
            return
        self._asked_at = now
        self._channel.queue_declare(self._queue, passive=True, callback=self._on_answer)

    def _on_open(self, channel: Any) -> None:
        self._channel = channel

    def _on_answer(self, answer: Any) -> None:
        found = answer.method
        # Each of the queue's consumers tells its share, as one of a Kafka group does.
        self._count = -(-found.message_count // max(1, found.consumer_count))
        self._told_at = monotonic()
