"""One publish: a batch, its deadline, and the outcome of each delivery so far."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from duebridge.ports.publisher import CONFIRMED, Delivery, Outcome, Verdict
from duebridge_connectors.kafka.errors import RequestFailed

# The first look-up of a topic may take this long; only its own deliveries wait for it.
LOOK_UP_S = 3.0

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

    `temporary` holds the places whose error may pass within this publish; `refused` those whose
    error answered a whole produce batch, so that another record in it may be the culprit.
    """

    def __init__(self, batch: Sequence[Delivery], deadline: Deadline) -> None:
        self.batch = batch
        self.deadline = deadline
        self.outcomes: list[Outcome] = [not_sent("not tried")] * len(batch)
        self.temporary: set[int] = set()
        self.refused: set[int] = set()

    def send(self, client: Client, places: Sequence[int]) -> None:
        """Publish the deliveries at these places once and wait for their answers."""
        self.temporary.difference_update(places)
        self.refused.difference_update(places)
        unknown = {topic for topic in map(self.topic, places) if not client.knows(topic)}
        late = [place for place in places if self.topic(place) in unknown] if unknown else []
        known = [place for place in places if self.topic(place) not in unknown] if late else places
        self._hand_over(client, known)
        if late:
            self._hand_over(client, self._found(client, sorted(unknown), late))
        self._wait()

    def note(self, places: Iterable[int], outcome: Outcome) -> None:
        """Note one outcome for several deliveries.

        An earlier send that was left open stays open: a later refusal says nothing about it.
        """
        for place in places:
            is_open = self.outcomes[place].verdict is Verdict.INDETERMINATE
            if not is_open or outcome is CONFIRMED:
                self.outcomes[place] = outcome

    def _note_refusal(self, place: int, refusal: Refusal) -> None:
        self.note([place], refusal.outcome)
        if refusal.is_temporary:
            self.temporary.add(place)

    def topic(self, place: int) -> str:
        """Return the topic of a delivery."""
        return self.batch[place].target.topic or ""

    def _hand_over(self, client: Client, places: Sequence[int]) -> None:
        if not places:
            return
        left_s = self.deadline.left_s()
        if not left_s or not client.turn.acquire(timeout=left_s):
            self.note(places, not_sent("other batches took all the time until the deadline"))
            return
        try:
            self._send(client, places)
        finally:
            client.turn.release()

    def _found(self, client: Client, topics: list[str], late: list[int]) -> list[int]:
        """Return the places whose topic the broker has; note the error of the others."""
        found: list[int] = []
        try:
            refusals = self._look_up(client, topics, self.deadline.left_s(LOOK_UP_S))
        except RequestFailed as error:
            self.note(late, not_sent(str(error)))
            return found
        for place in late:
            refusal = refusals[self.topic(place)]
            if refusal is None:
                found.append(place)
            else:
                self._note_refusal(place, refusal)
        return found

    @abstractmethod
    def _look_up(
        self, client: Client, topics: list[str], within_s: float
    ) -> Mapping[str, Refusal | None]:
        """Ask the broker for topics: None for each it has, else why not. Raises `RequestFailed`."""

    @abstractmethod
    def _send(self, client: Client, places: Sequence[int]) -> None:
        """Hand deliveries to the client library, with `turn` held."""

    @abstractmethod
    def _wait(self) -> None:
        """Wait, until the deadline at most, for the answers to what was sent."""
