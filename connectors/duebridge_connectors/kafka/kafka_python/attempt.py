"""One publish through kafka-python, whose producer returns futures."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka import errors as vendor

from duebridge.ports.publisher import Delivery, Outcome
from duebridge_connectors.kafka.attempt import (
    CONFIRMED_IN,
    UNANSWERED_IN,
    AttemptError,
    Deadline,
    PublishAttempt,
    not_sent,
)
from duebridge_connectors.kafka.errors import outcome_of, words_of
from duebridge_connectors.kafka.kafka_python.client import KafkaPythonClient, part_of, refusal_of


class KafkaPythonAttempt(PublishAttempt[KafkaPythonClient]):
    """A `PublishAttempt` that waits for one future per delivery."""

    def __init__(self, batch: Sequence[Delivery], deadline: Deadline) -> None:
        super().__init__(batch, deadline)
        self._futures: dict[int, Any] = {}

    def _look_up(
        self, client: KafkaPythonClient, topics: list[str], within_s: float
    ) -> Mapping[str, AttemptError | None]:
        return client.look_up(topics, within_s)

    def _send(self, client: KafkaPythonClient, indexes: Sequence[int]) -> None:
        lost: dict[str, Outcome] = {}
        for index in indexes:
            topic = self.topic(index)
            if topic in lost:
                self.record([index], lost[topic])
                continue
            try:
                self._futures[index] = client.send(self.batch[index])
            except (vendor.KafkaTimeoutError, vendor.IllegalStateError) as error:
                # The client has just lost the topic or was retired: another send would block.
                lost[topic] = not_sent(words_of(error))
                self.record([index], lost[topic])
            except Exception as error:
                if not client.knows(topic):  # lost within `send`, which then fails in many ways
                    lost[topic] = not_sent(f"the client has just lost topic {topic}")
                self.record([index], lost.get(topic) or outcome_of(error))

    def _wait(self) -> None:
        for index, future in self._futures.items():
            if not future.is_done:
                # Raises a timeout or the delivery's error, which is read below.
                with suppress(Exception):
                    future.get(self.deadline.left_s())
            self._record_answer(index, future)
        self._futures.clear()

    def _record_answer(self, index: int, future: Any) -> None:
        if not future.is_done:
            self.record([index], UNANSWERED_IN[part_of(future)])
        elif future.exception is None:
            self.outcomes[index] = CONFIRMED_IN[future.value.partition]
        else:
            refusal, part = refusal_of(future.exception), part_of(future)
            self._record_answered_refusal(index, self.outcomes[index], refusal, part)
            self.refused.add(index)
