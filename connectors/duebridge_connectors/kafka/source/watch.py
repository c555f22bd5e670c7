"""Watches the topic's id: a topic that was deleted and recreated is another log.

Clients that fetch by name go on at their old offset in the new topic. What they read there counts
as the old topic's until the watch notices; then everything is read from the beginning.
"""

import time
from collections.abc import Callable

from duebridge.errors import BridgeError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.kafka.source.consumer import Question

ASK_S = 1.0  # between two questions
ANSWER_S = 5.0  # to the first question
SILENCE_S = 10.0  # without an answer the broker counts as away


class TopicRemade(BridgeError):
    """The topic's id is another than that at the connect."""


class TopicWatch:
    """Asks for a topic's id once a second, without waiting for the answers."""

    def __init__(
        self, ask: Callable[[], Question], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Ask and wait; raises `BrokerUnavailable` and `ConfigError`."""
        self._ask = ask
        self._monotonic = monotonic
        self.topic_id = ask().answer(ANSWER_S)
        self._question: Question | None = None
        self._asked_at = self._answered_at = monotonic()

    def check(self) -> None:
        """Raise `TopicRemade`, `BrokerUnavailable` after a long silence, `ConfigError`."""
        now = self._monotonic()
        question = self._question
        if question is not None and question.is_answered():
            self._question = None
            self._read(question, now)
        elif now - self._answered_at > SILENCE_S:
            raise BrokerUnavailable(f"no broker answered for {SILENCE_S:.0f} s")
        if self._question is None and now - self._asked_at >= ASK_S:
            self._asked_at = now
            self._question = self._ask()

    def _read(self, question: Question, now: float) -> None:
        try:
            topic_id = question.answer(0)
        except BrokerUnavailable as error:
            if now - self._answered_at > SILENCE_S:
                raise
            del error  # one broker of several, or a leader that moves
            return
        self._answered_at = now
        if topic_id != self.topic_id:
            raise TopicRemade(f"the topic was recreated: {self.topic_id} is now {topic_id}")
