"""Kafka's publisher: one outcome per delivery, within the deadline, whatever the client does."""

import time
from collections.abc import Mapping, Sequence

from duebridge.ports.publisher import BrokerUnavailable, Delivery, Outcome, Verdict
from duebridge_connectors.kafka.answers import is_temporary, may_be_a_neighbours_fault, verdict_of
from duebridge_connectors.kafka.connection import PING_S, Connection
from duebridge_connectors.kafka.deadline import Deadline
from duebridge_connectors.kafka.errors import NotSent, NotTriedAlone
from duebridge_connectors.kafka.exchange import Exchange

# A partition between two leaders gets these chances within one publish.
AGAIN_AFTER_S = (0.1, 0.4)


class KafkaPublisher:
    """A `Publisher` that speaks through kafka-python. Nothing is connected before the first use."""

    def __init__(self, config: Mapping[str, object], publish_deadline_s: float) -> None:
        self._deadline_s = publish_deadline_s
        self._bulk = Connection(config, publish_deadline_s)
        # No produce batch of this one has two records: whom it refuses, it means.
        self._single = Connection({**config, "batch_size": 0}, publish_deadline_s)

    @property
    def replaced(self) -> int:
        """How many clients were given up because they did not answer."""
        return self._bulk.replaced + self._single.replaced

    def publish(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Hand the batch over as a whole and wait for all answers; see `Publisher.publish`."""
        if not batch:
            self._ping()
            return []
        exchange = Exchange(batch, Deadline(self._deadline_s))
        self._carry(self._bulk, exchange, range(len(batch)))
        self._carry_again(exchange)
        self._carry_alone(exchange)
        return exchange.outcomes()

    def ping(self) -> None:
        """Raise `BrokerUnavailable` unless the broker answers."""
        self.publish(())

    def close(self) -> None:
        """End every connection; what is under way becomes INDETERMINATE. Idempotent."""
        self._bulk.close()
        self._single.close()

    def _ping(self) -> None:
        deadline = Deadline(min(PING_S, self._deadline_s))
        self._bulk.ping(self._bulk.client(deadline), deadline)

    def _carry(self, connection: Connection, exchange: Exchange, places: Sequence[int]) -> None:
        try:
            client = connection.client(exchange.deadline)
        except BrokerUnavailable as error:
            exchange.note(places, NotSent(str(error)))
            return
        exchange.carry(client, places)
        connection.heed(client, exchange)

    def _carry_again(self, exchange: Exchange) -> None:
        """Try anew what met a partition between two leaders; the client itself never retries."""
        for pause_s in AGAIN_AFTER_S:
            places = [p for p, answer in enumerate(exchange.answers) if is_temporary(answer)]
            if not places:
                return
            time.sleep(exchange.deadline.left_s(pause_s))
            self._bulk.refresh(exchange.deadline)
            self._carry(self._bulk, exchange, places)

    def _carry_alone(self, exchange: Exchange) -> None:
        """Try each record of a refused batch by itself, so that none is refused for another's sake.

        What is not reached by the deadline was refused with its batch, perhaps unjustly: FAILED.
        """
        suspects = {
            place: NotTriedAlone(repr(exchange.answers[place]))
            for place in sorted(exchange.refused)
            if may_be_a_neighbours_fault(exchange.answers[place])
        }
        if not suspects:
            return
        self._carry(self._single, exchange, list(suspects))
        for place, error in suspects.items():
            if verdict_of(exchange.answers[place]) is Verdict.UNAVAILABLE:
                exchange.answers[place] = error
