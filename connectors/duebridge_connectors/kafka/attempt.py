"""One publish of a batch: its deadline and the outcome of each delivery."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from duebridge.ports.publisher import CONFIRMED, Delivery, Outcome, Reason, Verdict
from duebridge_connectors.kafka.errors import RequestFailed
from duebridge_connectors.kafka.leaders import Leaders

# Limit of a topic's lookup; only deliveries to that topic wait for it.
LOOKUP_TIMEOUT_S = 3.0
# Limit of a later one, for its leaders.
LOOK_AGAIN_TIMEOUT_S = 1.0
# kafka-python waits whole milliseconds: a wait until the deadline ends by less before it.
LEAST_S = 0.001


class _PartOutcomes(dict[int, Outcome]):
    """One shared outcome per partition, so that an answer allocates nothing."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self._outcome = outcome

    def __missing__(self, part: int) -> Outcome:
        return self.setdefault(part, replace(self._outcome, part=part))


CONFIRMED_IN = _PartOutcomes(CONFIRMED)
UNANSWERED = Outcome(
    Verdict.INDETERMINATE,
    error_class="Unanswered",
    error_message="no answer within the publish deadline",
)
UNANSWERED_IN = _PartOutcomes(UNANSWERED)


class Deadline:
    """The time limit that all steps of one publish share."""

    def __init__(self, within_s: float) -> None:
        self._at = time.monotonic() + within_s

    def left_s(self, at_most: float = float("inf")) -> float:
        """Return the seconds left, between 0 and `at_most`; 0 for too few to ask for anything."""
        left_s = self._at - time.monotonic()
        return min(at_most, left_s) if left_s > LEAST_S else 0.0


class AttemptError(NamedTuple):
    """The outcome of an error, and whether a retry within the same publish may succeed."""

    outcome: Outcome
    is_temporary: bool = False


class TopicClient(Protocol):
    """The interface that both Kafka clients share."""

    turn: threading.Lock
    """Held by the thread that hands over a batch."""

    leaders: Leaders

    def knows(self, topic: str) -> bool:
        """Whether the topic is in the client's cached metadata."""
        ...


Client = TypeVar("Client", bound=TopicClient)


def not_sent(cause: str) -> Outcome:
    """Return UNAVAILABLE: the delivery never reached the client library."""
    return Outcome(Verdict.UNAVAILABLE, error_class="NotSent", error_message=cause)


def weighed(before: Outcome, outcome: Outcome) -> Outcome:
    """Return the outcome that holds after both.

    What may be published stays so unless it is confirmed: a later refusal proves nothing about
    the first send.
    """
    is_last_word = outcome.verdict in {Verdict.CONFIRMED, Verdict.INDETERMINATE}
    return outcome if is_last_word or not before.may_be_published else before


class PublishAttempt(ABC, Generic[Client]):
    """Sends one batch and collects its outcomes, on the publishing thread.

    `temporary` holds the indexes whose error a retry within this publish may overcome, `refused`
    those whose error covered a whole produce batch: another record may have caused it. `unlocated`
    holds those sent to a topic or partition that is missing: `send` looks their topics up again.
    """

    def __init__(self, batch: Sequence[Delivery], deadline: Deadline) -> None:
        self.batch = batch
        self.deadline = deadline
        self.outcomes: list[Outcome] = [not_sent("not tried")] * len(batch)
        self.temporary: set[int] = set()
        self.refused: set[int] = set()
        self.unlocated: set[int] = set()

    def send(self, client: Client, indexes: Sequence[int]) -> None:
        """Send the deliveries at these indexes once and wait for the broker's answers."""
        self.temporary.difference_update(indexes)
        self.refused.difference_update(indexes)
        doubted = set(map(self.topic, self.unlocated.intersection(indexes)))
        self.unlocated.difference_update(indexes)
        topics = set(map(self.topic, indexes))
        new_topics = {topic for topic in topics if topic in doubted or not client.knows(topic)}
        deferred: list[int] = []
        known = indexes
        if new_topics:
            deferred = [index for index in indexes if self.topic(index) in new_topics]
            known = [index for index in indexes if self.topic(index) not in new_topics]
        self._look_for_leaders(client, topics - new_topics)
        self._hand_over(client, self._with_leader(client, topics, known))
        if deferred:
            resolved = self._resolved_indexes(client, sorted(new_topics), deferred)
            self._hand_over(client, self._with_leader(client, topics, resolved))
        self._wait()
        client.leaders.doubt({self.topic(index) for index in indexes if self._is_open(index)})

    def _is_open(self, index: int) -> bool:
        return self.outcomes[index].verdict is Verdict.INDETERMINATE

    def record(self, indexes: Iterable[int], outcome: Outcome) -> None:
        """Record one outcome for several deliveries, weighed against those before."""
        for index in indexes:
            self.outcomes[index] = weighed(self.outcomes[index], outcome)

    def restore_unsent(self, before: Mapping[int, Outcome]) -> None:
        """Give those that a retry could not send the outcomes that they had before it."""
        for index, outcome in before.items():
            if self.outcomes[index].verdict is Verdict.UNAVAILABLE:
                self.outcomes[index] = outcome

    def _record_refusal(self, index: int, refusal: AttemptError) -> None:
        self.record([index], refusal.outcome)
        if refusal.is_temporary:
            self.temporary.add(index)

    def _record_answered_refusal(
        self, index: int, before: Outcome, refusal: AttemptError, part: int = -1
    ) -> None:
        """Record the refusal of what was handed over, in one step.

        A missing topic may be known by old metadata alone: only a look-up makes it the target's
        failure.
        """
        outcome = refusal.outcome
        is_unlocated = outcome.reason is Reason.TARGET_MISSING
        if is_unlocated:
            verdict, reason = Verdict.TARGET_UNAVAILABLE, Reason.ATTEMPTS_EXHAUSTED
            outcome = replace(outcome, verdict=verdict, reason=reason)
        self.outcomes[index] = weighed(before, replace(outcome, part=part))
        if refusal.is_temporary:
            self.temporary.add(index)
        if is_unlocated:
            self.unlocated.add(index)

    def topic(self, index: int) -> str:
        """Return the topic of a delivery."""
        return self.batch[index].target.topic or ""

    def _look_for_leaders(self, client: Client, topics: Iterable[str]) -> None:
        """Look up who leads the topics that lack a leader or an answer; a failure is ignored."""
        if due := client.leaders.begin_looks(topics):
            with suppress(RequestFailed):
                self._look_up(client, due, self.deadline.left_s(LOOK_AGAIN_TIMEOUT_S))

    def _with_leader(
        self, client: Client, topics: Iterable[str], indexes: Sequence[int]
    ) -> Sequence[int]:
        """Return the indexes to send; record the refusal of those whose partition has no leader."""
        if not client.leaders.has_vacancy(topics):
            return indexes
        refusals = {index: client.leaders.refusal(self.batch[index]) for index in indexes}
        for index, refusal in refusals.items():
            if refusal is not None:
                self.record([index], refusal)
        return [index for index in indexes if refusals[index] is None]

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

    def _resolved_indexes(
        self, client: Client, topics: list[str], deferred: list[int]
    ) -> list[int]:
        """Look topics up; return the indexes whose topic exists and record errors for the rest."""
        resolved: list[int] = []
        try:
            refusals = self._look_up(client, topics, self.deadline.left_s(LOOKUP_TIMEOUT_S))
        except RequestFailed as error:
            self.record(deferred, not_sent(str(error)))
            return resolved
        for index in deferred:
            refusal = refusals[self.topic(index)]
            if refusal is None:
                resolved.append(index)
            else:
                self._record_refusal(index, refusal)
        return resolved

    @abstractmethod
    def _look_up(
        self, client: Client, topics: list[str], within_s: float
    ) -> Mapping[str, AttemptError | None]:
        """Return a refusal, or None, for each topic. Raises `RequestFailed`."""

    @abstractmethod
    def _send(self, client: Client, indexes: Sequence[int]) -> None:
        """Hand deliveries to the client library; the caller holds `turn`."""

    @abstractmethod
    def _wait(self) -> None:
        """Wait for all answers or the deadline."""
