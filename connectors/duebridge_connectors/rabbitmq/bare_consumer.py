"""pika that only acks: what `duebridge bench` compares an intake with."""

import secrets
from collections.abc import Sequence
from typing import Any, Final

import pika
from pika.adapters.select_connection import IOLoop, SelectConnection

from duebridge.ports.baseline import DEADLINE_S, DELAY_MS, FILL_HEADERS
from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.rabbitmq.baseline import with_channel

PREFETCH: Final = 1000
ACK_EVERY: Final = 250
COMMIT_EVERY: Final = 1000
_HEADERS: Final = {"x-delay": DELAY_MS, **dict(FILL_HEADERS)}


class RabbitBareConsumer:
    """A `BareConsumer` with a `SelectConnection` and a durable classic queue."""

    def __init__(self, parameters: pika.connection.Parameters, name: str) -> None:
        self.source = {"queue": name}
        self._name = name
        self._parameters = parameters
        self._loop: Any = None
        self._channel: Any = None
        self._wanted = self._taken = 0
        with_channel(parameters, lambda channel: channel.queue_declare(name, durable=True))

    def fill(self, bodies: Sequence[bytes]) -> None:
        """Publish persistent messages in transactions; see `BareConsumer`."""

        def publish(channel: Any) -> None:
            channel.tx_select()
            for number, body in enumerate(bodies, 1):
                properties = pika.BasicProperties(
                    delivery_mode=2, headers=_HEADERS, message_id=secrets.token_hex(8)
                )
                channel.basic_publish("", self._name, body, properties)
                if number % COMMIT_EVERY == 0 or number == len(bodies):
                    channel.tx_commit()

        with_channel(self._parameters, publish)

    def take(self, count: int) -> None:
        """Consume with a prefetch and ack many at a time; see `BareConsumer`."""
        self._wanted += count
        if self._loop is None:
            self._loop = IOLoop()
            self._connection: Any = SelectConnection(
                self._parameters,
                on_open_callback=lambda opened: opened.channel(on_open_callback=self._consume),
                on_close_callback=lambda *_: self._loop.stop(),
                custom_ioloop=self._loop,
            )
        if self._taken >= self._wanted:  # the last read brought them too
            self._channel.basic_ack(0, multiple=True)
            return
        late = self._loop.call_later(DEADLINE_S, self._loop.stop)
        self._loop.start()
        self._loop.remove_timeout(late)
        if self._taken < self._wanted:
            raise BrokerUnavailable(f"rabbitmq: {self._taken} of {self._wanted} came")

    def _consume(self, channel: Any) -> None:
        self._channel = channel
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(self._name, self._on_message)

    def _on_message(self, channel: Any, method: Any, _: Any, __: bytes) -> None:
        self._taken += 1
        is_last = self._taken == self._wanted
        if is_last or self._taken % ACK_EVERY == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if is_last:
            self._loop.stop()

    def close(self) -> None:
        """Close, and delete the queue; see `BareConsumer`."""
        if self._loop is not None:
            self._connection.close()
            self._loop.start()
            self._loop.close()
        with_channel(self._parameters, lambda channel: channel.queue_delete(self._name))
