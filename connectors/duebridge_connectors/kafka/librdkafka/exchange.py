"""One batch on its way: hand it over, wait for the answers, never longer than the deadline."""

import threading
from collections.abc import Iterable, Sequence
from functools import partial

from confluent_kafka import KafkaError

from duebridge.ports.publisher import CONFIRMED, Delivery, Outcome, Verdict
from duebridge_connectors.kafka.deadline import Deadline
from duebridge_connectors.kafka.librdkafka.client import Client, NotSent
from duebridge_connectors.kafka.librdkafka.errors import TEMPORARY, outcome_of, refusal_of

# A topic seen for the first time may take this long; nothing but its own deliveries waits for it.
LOOK_UP_S = 3.0

UNANSWERED = Outcome(
    Verdict.INDETERMINATE,
    error_class="Unanswered",
    error_message="no answer within the publish deadline",
)


def not_sent(why: str) -> Outcome:
    """Return the outcome of what the client library never got."""
    return Outcome(Verdict.UNAVAILABLE, error_class="NotSent", error_message=why)


class Exchange:
    """A batch and its outcomes so far. It belongs to the thread that publishes it.

    `temporary` has the places whose error may be over in a moment, `refused` those whose error came
    back for a produce batch as a whole: it may be the fault of another record in it.
    """

    def __init__(self, batch: Sequence[Delivery], deadline: Deadline) -> None:
        self.batch = batch
        self.deadline = deadline
        self.outcomes: list[Outcome] = [not_sent("not tried")] * len(batch)
        self.temporary: set[int] = set()
        self.refused: set[int] = set()
        # Answers are counted by the client's thread alone, and compared with what was handed over,
        # which is known last: whoever of the two threads sees them equal ends the wait.
        self._handed = -1
        self._answered = 0
        self._all_answered = threading.Event()

    def note(self, places: Iterable[int], outcome: Outcome) -> None:
        """Note one outcome for several deliveries."""
        for place in places:
            self.outcomes[place] = outcome

    def carry(self, client: Client, places: Sequence[int]) -> None:
        """Let the client try the deliveries at these places once, and note what becomes of each."""
        self.temporary.difference_update(places)
        self.refused.difference_update(places)
        self._handed, self._answered = -1, 0
        self._all_answered.clear()
        unknown = {t for t in {self._topic(place) for place in places} if not client.knows(t)}
        late = [place for place in places if self._topic(place) in unknown] if unknown else []
        known = [place for place in places if self._topic(place) not in unknown] if late else places
        handed = self._hand_over(client, known)
        if late:
            handed += self._hand_over(client, self._look_up(client, sorted(unknown), late))
        self._await(handed)

    def _topic(self, place: int) -> str:
        return self.batch[place].target.topic or ""

    def _look_up(self, client: Client, topics: list[str], late: list[int]) -> list[int]:
        """Return the places whose topic the broker knows; note why the others cannot go."""
        deadline = Deadline(self.deadline.left_s(LOOK_UP_S))
        found: list[int] = []
        for topic in topics:
            places = [place for place in late if self._topic(place) == topic]
            try:
                error = client.look_up(topic, deadline.left_s())
            except NotSent as reason:
                self.note(places, not_sent(str(reason)))
            else:
                if error is None:
                    found += places
                else:
                    self._note_errors(places, error)
        return sorted(found)

    def _hand_over(self, client: Client, places: Sequence[int]) -> int:
        left_s = self.deadline.left_s()
        if not left_s or not client.turn.acquire(timeout=left_s):
            self.note(places, not_sent("other batches took all the time until the deadline"))
            return 0
        try:
            return self._send(client, places)
        finally:
            client.turn.release()

    def _send(self, client: Client, places: Sequence[int]) -> int:
        if client.has_ended:
            self.note(places, not_sent("the client has ended"))
            return 0
        handed = 0
        answer = partial(self._answer, client)
        self.note(places, UNANSWERED)  # before the answers, which another thread notes
        for place in places:
            try:
                client.send(self.batch[place], partial(answer, place))
                handed += 1
            except Exception as error:
                self.outcomes[place] = refusal_of(error)
        return handed

    def _answer(self, client: Client, place: int, error: KafkaError | None, _: object) -> None:
        """Note an answer; only the thread of one client calls this at a time."""
        if error is None:
            self.outcomes[place] = CONFIRMED
        else:
            self.refused.add(place)
            self._note_errors([place], error)
            if self.outcomes[place].verdict is Verdict.TARGET_FAILED:
                client.forget(self._topic(place))
        self._answered += 1
        if self._answered == self._handed:
            self._all_answered.set()

    def _note_errors(self, places: Sequence[int], error: KafkaError) -> None:
        self.note(places, outcome_of(error))
        if error.code() in TEMPORARY:
            self.temporary.update(places)

    def _await(self, handed: int) -> None:
        self._handed = handed
        if self._answered != handed:
            self._all_answered.wait(self.deadline.left_s())
