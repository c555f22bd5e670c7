"""Publishes batches to RabbitMQ: one outcome per delivery within the publish deadline."""

import os
import threading
from collections.abc import Sequence

from pika.connection import Parameters

from duebridge.ports.publisher import BrokerUnavailable, Delivery, Outcome, Verdict
from duebridge_connectors.rabbitmq.errors import Unencodable, outcome_of
from duebridge_connectors.rabbitmq.letters import as_letter
from duebridge_connectors.rabbitmq.publishing.batch import PendingMessage, PublishBatch
from duebridge_connectors.rabbitmq.publishing.encoding import (
    header_payload,
    is_risky,
    publish_payload,
)
from duebridge_connectors.rabbitmq.publishing.link import CLOSED, Link, ReadParameters

PING_S = 5.0


class RabbitPublisher:
    """A `Publisher` for RabbitMQ. It connects on first use.

    It has one connection and one thread per process; a forked child opens its own.
    """

    def __init__(
        self,
        parameters: Parameters,
        publish_deadline_s: float,
        read_parameters: ReadParameters | None = None,
    ) -> None:
        """Connect with `parameters`; later connections with what `read_parameters` returns then."""
        self._parameters = parameters
        self._read_parameters = read_parameters
        self._deadline_s = publish_deadline_s
        self._user = getattr(parameters.credentials, "username", None)
        self._is_closed = False
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._link: Link | None = None

    @property
    def is_blocked(self) -> bool:
        """Whether the broker has blocked the connection (`connection.blocked`)."""
        return self._link is not None and self._pid == os.getpid() and self._link.is_blocked

    def publish(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Send the batch and wait for all confirms; see `Publisher.publish`."""
        link = self._open_link()
        encoded = self._encode(batch)
        if link is None:
            encoded.settle_rest(CLOSED)
        if link is None or encoded.is_finished:
            return encoded.end(CLOSED, CLOSED)
        return link.publish(encoded, self._deadline_s)

    def ping(self) -> None:
        """Raise `BrokerUnavailable` unless the broker answers; see `Publisher.ping`."""
        link = self._open_link()
        answer = CLOSED
        if link is not None:
            answer = link.publish(PublishBatch(1), min(PING_S, self._deadline_s))[0]
        if answer.verdict is not Verdict.CONFIRMED:
            raise BrokerUnavailable(f"{answer.error_class}: {answer.error_message}")

    def close(self) -> None:
        """Close the connection and end its thread; see `Publisher.close`."""
        self._is_closed = True
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._link is not None:
                self._link.close()

    def _open_link(self) -> Link | None:
        """Return this process's link, reopened if its thread failed; None if closed."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            if self._is_closed:
                return None
            if self._link is None or not self._link.is_alive:
                defect = "" if self._link is None else self._link.defect
                self._link = Link(
                    self._parameters, read_parameters=self._read_parameters, known_defect=defect
                )
            return self._link

    def _encode(self, deliveries: Sequence[Delivery]) -> PublishBatch:
        batch = PublishBatch(len(deliveries))
        for index, delivery in enumerate(deliveries):
            try:
                exchange, message = self._pending_message(batch, index, delivery)
            except Unencodable as error:
                batch.settle(index, outcome_of(error))
            else:
                batch.groups.setdefault(exchange, []).append(message)
        return batch

    def _pending_message(
        self, batch: PublishBatch, index: int, delivery: Delivery
    ) -> tuple[str, PendingMessage]:
        exchange, routing_key = delivery.target.exchange, delivery.target.routing_key
        if exchange is None or routing_key is None:
            raise Unencodable(
                f"target: expected an exchange and a routing key; got {delivery.target}"
            )
        if delivery.is_dead_letter:
            delivery = as_letter(delivery)
        body = delivery.body
        if not isinstance(body, bytes):
            raise Unencodable(f"body: expected bytes; got {type(body).__name__}")
        return exchange, PendingMessage(
            batch,
            index,
            delivery.id,
            routing_key,
            publish_payload(exchange, routing_key),
            header_payload(delivery, len(body)),
            body,
            is_risky(delivery, self._user),
        )
