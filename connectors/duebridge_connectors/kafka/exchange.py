"""One batch on its way: hand it over, wait for the answers, never longer than the deadline."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from kafka import errors as vendor

from duebridge.ports.publisher import Delivery, Outcome, Verdict
from duebridge_connectors.kafka.answers import Answer, outcome_of, verdict_of
from duebridge_connectors.kafka.client import Client
from duebridge_connectors.kafka.deadline import Deadline
from duebridge_connectors.kafka.errors import NotSent, Unanswered

# A topic seen for the first time may take this long; nothing but its own deliveries waits for it.
LOOK_UP_S = 3.0


class Exchange:
    """A batch and its answers so far. It belongs to the thread that publishes it.

    `refused` has the places whose error came back for a produce batch as a whole: it may be the
    fault of another record in it.
    """

    def __init__(self, batch: Sequence[Delivery], deadline: Deadline) -> None:
        self.batch = batch
        self.deadline = deadline
        self.answers: list[Answer] = [NotSent("not tried")] * len(batch)
        self.refused: set[int] = set()

    def outcomes(self) -> Sequence[Outcome]:
        """Return one outcome per delivery, in order."""
        return [outcome_of(answer) for answer in self.answers]

    def carry(self, client: Client, places: Sequence[int]) -> None:
        """Let the client try the deliveries at these places once, and note each answer."""
        topics = {self._topic(place) for place in places}
        unknown = {topic for topic in topics if not client.knows(topic)}
        late = [place for place in places if self._topic(place) in unknown]
        known = [place for place in places if self._topic(place) not in unknown] if late else places
        futures = self._hand_over(client, known)
        if late:
            futures |= self._hand_over(client, self._look_up(client, unknown, late))
        self._await(futures)

    def note(self, places: Iterable[int], answer: Answer) -> None:
        """Note one answer for several deliveries.

        What an earlier attempt left open stays open: a later failure says nothing of that attempt.
        """
        for place in places:
            is_open = verdict_of(self.answers[place]) is Verdict.INDETERMINATE
            if answer is None or not is_open:
                self.answers[place] = answer

    def _topic(self, place: int) -> str:
        return self.batch[place].target.topic or ""

    def _look_up(self, client: Client, unknown: set[str], places: list[int]) -> list[int]:
        """Return the places whose topic the broker knows; note why the others cannot go."""
        try:
            answers = client.learn(unknown, self.deadline.left_s(LOOK_UP_S))
        except NotSent as error:
            self.note(places, error)
            return []
        for place in places:
            self.note([place], answers[self._topic(place)])
        return [place for place in places if answers[self._topic(place)] is None]

    def _hand_over(self, client: Client, places: Sequence[int]) -> dict[int, Any]:
        if not client.turn.acquire(timeout=self.deadline.left_s()):
            self.note(places, NotSent("other batches took all the time until the deadline"))
            return {}
        try:
            return self._send(client, places)
        finally:
            client.turn.release()

    def _send(self, client: Client, places: Sequence[int]) -> dict[int, Any]:
        futures: dict[int, Any] = {}
        lost: dict[str, NotSent] = {}
        for place in places:
            try:
                if lost and self._topic(place) in lost:
                    raise lost[self._topic(place)]
                futures[place] = client.send(self.batch[place])
            except (vendor.KafkaTimeoutError, vendor.IllegalStateError) as error:
                # It has lost the topic, or was retired, just now. Each further send would block.
                lost[self._topic(place)] = NotSent(str(error))
                self.note([place], lost[self._topic(place)])
            except Exception as error:
                self.note([place], error)
        return futures

    def _await(self, futures: dict[int, Any]) -> None:
        for place, future in futures.items():
            if not future.is_done:
                # It raises the delivery's own error, which is read below, or that time is up.
                with suppress(Exception):
                    future.get(self.deadline.left_s())
            if not future.is_done:
                self.note([place], Unanswered("no answer within the publish deadline"))
            elif future.exception is None:
                self.answers[place] = None
            else:
                self.note([place], future.exception)
                self.refused.add(place)
