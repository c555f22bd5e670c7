"""One publish through librdkafka, whose client thread reports the answers."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial

from confluent_kafka import KafkaError, Message

from duebridge.ports.publisher import Delivery, Outcome, Verdict
from duebridge_connectors.kafka.attempt import (
    CONFIRMED_IN,
    UNANSWERED,
    AttemptError,
    Deadline,
    PublishAttempt,
    not_sent,
)
from duebridge_connectors.kafka.librdkafka.client import LibrdkafkaClient
from duebridge_connectors.kafka.librdkafka.errors import answered_refusal, produce_refusal


class LibrdkafkaAttempt(PublishAttempt[LibrdkafkaClient]):
    """A `PublishAttempt` that counts delivery reports."""

    def __init__(self, batch: Sequence[Delivery], deadline: Deadline) -> None:
        super().__init__(batch, deadline)
        # Only the client's thread counts answers. `_expected` is set after the handover; the
        # thread that sees both counts equal ends the wait.
        self._handed = 0
        self._expected = -1
        self._answered = 0
        self._all_answered = threading.Event()

    def send(self, client: LibrdkafkaClient, indexes: Sequence[int]) -> None:
        """Send the deliveries at these indexes once and wait for the broker's answers."""
        self._handed, self._expected, self._answered = 0, -1, 0
        self._all_answered.clear()
        super().send(client, indexes)

    def _look_up(
        self, client: LibrdkafkaClient, topics: list[str], within_s: float
    ) -> Mapping[str, AttemptError | None]:
        return client.look_up(topics, within_s)

    def _send(self, client: LibrdkafkaClient, indexes: Sequence[int]) -> None:
        if client.has_ended:
            self.record(indexes, not_sent("the client has ended"))
            return
        answer = partial(self._on_answer, client)
        for index in indexes:
            # The client's thread may record the answer before `send` returns.
            before, self.outcomes[index] = self.outcomes[index], UNANSWERED
            try:
                client.send(self.batch[index], partial(answer, index, before))
                self._handed += 1
            except Exception as error:
                self._record_answered_refusal(index, before, AttemptError(produce_refusal(error)))

    def _on_answer(
        self,
        client: LibrdkafkaClient,
        index: int,
        before: Outcome,
        error: KafkaError | None,
        sent: Message,
    ) -> None:
        """Record an answer in the place of UNANSWERED; runs on the client's thread.

        At every moment the outcome of what was handed over is unsure or the broker's: past the
        deadline, the publishing thread takes it at any moment.
        """
        part = sent.partition()
        part = -1 if part is None else part
        if error is None:
            self.outcomes[index] = CONFIRMED_IN[part]
        else:
            self.refused.add(index)
            refusal = answered_refusal(error)
            self._record_answered_refusal(index, before, refusal, part)
            if refusal.outcome.verdict is Verdict.TARGET_FAILED:
                client.forget(self.topic(index))
        self._answered += 1
        if self._answered == self._expected:
            self._all_answered.set()

    def _wait(self) -> None:
        self._expected = self._handed
        if self._answered != self._expected:
            self._all_answered.wait(self.deadline.left_s())
