"""Publishes batches to Kafka: one outcome per delivery within the publish deadline."""

import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias

from msgspec.structs import replace

from duebridge.ports.publisher import BrokerUnavailable, Delivery, Outcome, Reason, Verdict
from duebridge_connectors.kafka.attempt import Client, Deadline, PublishAttempt, not_sent
from duebridge_connectors.kafka.connection import KafkaConnection

# Delays of the retries after a temporary error within one publish.
RETRY_AFTER_S = (0.1, 0.4)
# Records that go alone and are unanswered at the deadline are in doubt; this bounds them.
MOST_ALONE = 64


StartAttempt: TypeAlias = Callable[[Sequence[Delivery], Deadline], PublishAttempt[Client]]


class KafkaPublisher(Generic[Client]):
    """A `Publisher` for Kafka. It connects on first use.

    `single` sends one record per produce batch, so that a refusal identifies its record.
    """

    def __init__(
        self,
        start: StartAttempt[Client],
        bulk: KafkaConnection[Client],
        single: KafkaConnection[Client],
        publish_deadline_s: float,
    ) -> None:
        self._start = start
        self._bulk = bulk
        self._single = single
        self._deadline_s = publish_deadline_s

    @property
    def replaced(self) -> int:
        """The number of clients replaced because they did not answer."""
        return self._bulk.replaced + self._single.replaced

    def publish(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Send the batch, retry refused records and return outcomes; see `Publisher.publish`."""
        attempt = self._start(batch, Deadline(self._deadline_s))
        self._send(self._bulk, attempt, range(len(batch)))
        self._retry_unlocated(attempt)
        self._retry_temporary(attempt)
        self._retry_individually(attempt)
        return attempt.outcomes.copy()  # late answers must not change the result

    def ping(self) -> None:
        """Raise `BrokerUnavailable` unless a broker answers within the publish deadline."""
        self._bulk.ping(Deadline(self._deadline_s))

    def close(self) -> None:
        """Close all connections; deliveries in flight become INDETERMINATE. Idempotent."""
        self._bulk.close()
        self._single.close()

    def _send(
        self,
        connection: KafkaConnection[Client],
        attempt: PublishAttempt[Client],
        indexes: Sequence[int],
    ) -> None:
        try:
            client = connection.client(attempt.deadline)
        except BrokerUnavailable as error:
            attempt.record(indexes, not_sent(str(error)))
            return
        attempt.send(client, indexes)
        connection.observe(client, [attempt.outcomes[index] for index in indexes])

    def _retry_unlocated(self, attempt: PublishAttempt[Client]) -> None:
        """Look up the topics that were missing, and send to those that exist once more.

        The topic may have been made again with fewer partitions since the client looked. Where no
        look-up tells, the refusal stands: the broker has answered.
        """
        refused = {index: attempt.outcomes[index] for index in sorted(attempt.unlocated)}
        if refused and attempt.deadline.left_s():
            self._send(self._bulk, attempt, list(refused))
            attempt.restore_unsent(refused)

    def _retry_temporary(self, attempt: PublishAttempt[Client]) -> None:
        """Retry temporary errors, such as a leader election: the client itself never retries."""
        for pause_s in RETRY_AFTER_S:
            if attempt.temporary:
                time.sleep(attempt.deadline.left_s(pause_s))
            if attempt.temporary and attempt.deadline.left_s():
                self._bulk.refresh(attempt.deadline)
                self._send(self._bulk, attempt, sorted(attempt.temporary))

    def _retry_individually(self, attempt: PublishAttempt[Client]) -> None:
        """Retry each record of a refused batch on its own: another record may have caused it.

        Those for which no time is left are no failures: nothing was appended, and they come again.
        As each publish tries one at least, the next batch is smaller.
        """
        suspects = {
            index: _not_tried_alone(attempt.outcomes[index])
            for index in sorted(attempt.refused - attempt.temporary)
            if attempt.outcomes[index].verdict in {Verdict.REJECTED, Verdict.FAILED}
        }
        for index, outcome in suspects.items():
            attempt.outcomes[index] = outcome
        self._send_alone(attempt, list(suspects))
        attempt.restore_unsent(suspects)

    def _send_alone(self, attempt: PublishAttempt[Client], waiting: list[int]) -> None:
        """Send records one per produce batch, no more at a time than will be answered in time."""
        size, record_s = 1, 0.0
        while waiting and (left_s := attempt.deadline.left_s()) > 2 * size * record_s:
            now, waiting = waiting[:size], waiting[size:]
            self._send(self._single, attempt, now)
            record_s = (left_s - attempt.deadline.left_s()) / len(now)
            size = min(2 * size, MOST_ALONE)


def _not_tried_alone(refused: Outcome) -> Outcome:
    text = f"refused with others, no time to try it alone: {refused.error_message}"
    return replace(
        refused,
        verdict=Verdict.DEFERRED,
        reason=Reason.ATTEMPTS_EXHAUSTED,
        error_message=text,
    )
