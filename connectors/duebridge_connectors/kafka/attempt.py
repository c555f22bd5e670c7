"""One publish: a batch, its deadline, and the outcome of each delivery so far."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from duebridge.ports.publisher import CONFIRMED, Delivery, Outcome, Verdict
from duebridge_connectors.kafka.errors import RequestFailed

# The first look-up of a topic may take this long; only its own deliveries wait for it.
LOOKUP_TIMEOUT_S = 3.0

UNANSWERED = Outcome(
    Verdict.INDETERMINATE,
    error_class="Unanswered",
    error_message="no answer within the publish deadline",
)


class Deadline:
    """A moment `within_s` seconds from now that every step of one publish keeps to."""

    def __init__(self, within_s: float) -> None:
        self._at = time.monotonic() + within_s

    def left_s(self, at_most: float = float("inf")) -> float:
        """Return the seconds left: 0 when it is past, `at_most` when there are more."""
        return min(at_most, max(0.0, self._at - time.monotonic()))


class Refusal(NamedTuple):
    """The outcome of an error, and whether it may pass within the same publish."""

    outcome: Outcome
    is_temporary: bool = False


class TopicClient(Protocol):
    """A Kafka client, as far as both client libraries are alike."""

    turn: threading.Lock
    """Held by the thread that hands a batch over."""

    def knows(self, topic: str) -> bool:
        """Whether the topic is in the client's metadata; asks no broker."""
        ...


Client = TypeVar("Client", bound=TopicClient)


def not_sent(why: str) -> Outcome:
    """Return the outcome of a delivery that never reached the client library."""
    return Outcome(Verdict.UNAVAILABLE, error_class="NotSent", error_message=why)


class PublishAttempt(ABC, Generic[Client]):
    """The outcomes of one batch. It belongs to the thread that publishes.

    `temporary` holds the indexes whose error may pass within this publish; `refused` those whose
    error answered a whole produce batch, so that another record in it may be the culprit.
    """

    def __init__(self, batch: Sequence[Delivery], deadline: Deadline) -> None:
        self.batch = batch
        self.deadline = deadline
        self.outcomes: list[Outcome] = [not_sent("not tried")] * len(batch)
        self.temporary: set[int] = set()
        self.refused: set[int] = set()

    def send(self, client: Client, indexes: Sequence[int]) -> None:
        """Publish the deliveries at these indexes once and wait for their answers."""
        self.temporary.difference_update(indexes)
        self.refused.difference_update(indexes)
        unknown = {topic for topic in map(self.topic, indexes) if not client.knows(topic)}
        late = [index for index in indexes if self.topic(index) in unknown] if unknown else []
        known = (
            [index for index in indexes if self.topic(index) not in unknown] if late else indexes
        )
        self._hand_over(client, known)
        if late:
            self._hand_over(client, self._resolved_indexes(client, sorted(unknown), late))
        self._wait()

    def record(self, indexes: Iterable[int], outcome: Outcome) -> None:
        """Note one outcome for several deliveries.

        An earlier send that was left open stays open: a later refusal says nothing about it.
        """
        for index in indexes:
            is_open = self.outcomes[index].verdict is Verdict.INDETERMINATE
            if not is_open or outcome is CONFIRMED:
                self.outcomes[index] = outcome

    def _record_refusal(self, index: int, refusal: Refusal) -> None:
        self.record([index], refusal.outcome)
        if refusal.is_temporary:
            self.temporary.add(index)

    def topic(self, index: int) -> str:
        """Return the topic of a delivery."""
        return self.batch[index].target.topic or ""

    def _hand_over(self, client: Client, indexes: Sequence[int]) -> None:
        if not indexes:
            return
        left_s = self.deadline.left_s()
        if not left_s or not client.turn.acquire(timeout=left_s):
            self.record(indexes, not_sent("other batches took all the time until the deadline"))
            return
        try:
            self._send(client, indexes)
        finally:
            client.turn.release()

    def _resolved_indexes(self, client: Client, topics: list[str], late: list[int]) -> list[int]:
        """Return the indexes whose topic the broker has; note the error of the others."""
        found: list[int] = []
        try:
            refusals = self._look_up(client, topics, self.deadline.left_s(LOOKUP_TIMEOUT_S))
        except RequestFailed as error:
            self.record(late, not_sent(str(error)))
            return found
        for index in late:
            refusal = refusals[self.topic(index)]
            if refusal is None:
                found.append(index)
            else:
                self._record_refusal(index, refusal)
        return found

    @abstractmethod
    def _look_up(
        self, client: Client, topics: list[str], within_s: float
    ) -> Mapping[str, Refusal | None]:
        """Ask the broker for topics: None for each it has, else why not. Raises `RequestFailed`."""

    @abstractmethod
    def _send(self, client: Client, indexes: Sequence[int]) -> None:
        """Hand deliveries to the client library, with `turn` held."""

    @abstractmethod
    def _wait(self) -> None:
        """Wait, until the deadline at most, for the answers to what was sent."""
