"""Kafka's publisher of `client: librdkafka`: one outcome per delivery, within the deadline."""

import time
from collections.abc import Mapping, Sequence

from duebridge.ports.publisher import BrokerUnavailable, Delivery, Outcome, Verdict
from duebridge_connectors.kafka.deadline import Deadline
from duebridge_connectors.kafka.librdkafka.connection import PING_S, Connection
from duebridge_connectors.kafka.librdkafka.exchange import Exchange, not_sent
from duebridge_connectors.kafka.publisher import AGAIN_AFTER_S


class LibrdkafkaPublisher:
    """A `Publisher` that speaks through librdkafka. Nothing is connected before the first use."""

    def __init__(self, config: Mapping[str, object], publish_deadline_s: float) -> None:
        self._deadline_s = publish_deadline_s
        self._bulk = Connection(config)
        # No produce batch of this one has two records: whom it refuses, it means.
        self._single = Connection({**config, "batch.num.messages": 1})

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
        # A copy: what is answered after the deadline finds another list.
        return list(exchange.outcomes)

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
            exchange.note(places, not_sent(str(error)))
            return
        exchange.carry(client, places)
        connection.heed(client, [exchange.outcomes[place] for place in places])

    def _carry_again(self, exchange: Exchange) -> None:
        """Try anew what is short of replicas, which the client itself is told not to do."""
        for pause_s in AGAIN_AFTER_S:
            if exchange.temporary:
                time.sleep(exchange.deadline.left_s(pause_s))
            if exchange.temporary and exchange.deadline.left_s():
                self._carry(self._bulk, exchange, sorted(exchange.temporary))

    def _carry_alone(self, exchange: Exchange) -> None:
        """Try each record of a refused batch by itself, so that none is refused for another's sake.

        What is not reached by the deadline was refused with its batch, perhaps unjustly: FAILED.
        """
        suspects = {
            place: _not_tried_alone(exchange.outcomes[place])
            for place in sorted(exchange.refused - exchange.temporary)
            if exchange.outcomes[place].verdict in {Verdict.REJECTED, Verdict.FAILED}
        }
        if not suspects:
            return
        self._carry(self._single, exchange, list(suspects))
        for place, outcome in suspects.items():
            if exchange.outcomes[place].verdict is Verdict.UNAVAILABLE:
                exchange.outcomes[place] = outcome


def _not_tried_alone(refused: Outcome) -> Outcome:
    said = f"{refused.error_class} {refused.error_message}"
    return Outcome(Verdict.FAILED, error_class="NotTriedAlone", error_message=said)
