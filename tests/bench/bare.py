"""The clients alone, publishing as fast as they confirm: what the bridge is compared with."""

from collections.abc import Sequence

import pika
from kafka import KafkaProducer
from pika.adapters.select_connection import SelectConnection
from pika.channel import Channel

# What the bridge puts on every delivery: the message on the wire is the same on both sides.
HEADERS = {
    "x-message-id": "q3Vb1mJc0m2hX8vT5yZk4w",
    "x-route": "r",
    "x-attempt": "1",
    "x-due-at": "1767225600000",
    "x-scheduled-at": "1767225600000",
}
WINDOW = 1000  # unconfirmed messages of the RabbitMQ publisher


def publish_to_kafka(bootstrap: str, topic: str, bodies: Sequence[bytes]) -> None:
    """Publish all, acks=all, with the settings that verified fastest in bulk; wait for each."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=False,
        max_in_flight_requests_per_connection=1,
        linger_ms=5,
        batch_size=262144,
    )
    headers = [(name, value.encode()) for name, value in HEADERS.items()]
    futures = [producer.send(topic, body, headers=headers) for body in bodies]
    producer.flush()
    assert all(future.succeeded() for future in futures)
    producer.close()


class RabbitPublisher:
    """A `SelectConnection` that keeps a window of unconfirmed messages and stops after the last."""

    def __init__(self, url: str, queue: str, bodies: Sequence[bytes]) -> None:
        self._queue, self._bodies = queue, bodies
        self._sent = self._confirmed = 0
        self._channel: Channel | None = None
        self._connection = SelectConnection(pika.URLParameters(url), on_open_callback=self._on_open)

    def run(self) -> None:
        """Publish all and return once each is confirmed."""
        self._connection.ioloop.start()

    def _on_open(self, connection: SelectConnection) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Channel) -> None:
        self._channel = channel
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._fill())

    def _on_confirm(self, frame: pika.frame.Method) -> None:  # type: ignore[type-arg]
        assert isinstance(frame.method, pika.spec.Basic.Ack)
        self._confirmed = (
            frame.method.delivery_tag if frame.method.multiple else self._confirmed + 1
        )
        if self._confirmed == len(self._bodies):
            self._connection.close()
            self._connection.ioloop.stop()
        elif self._sent - self._confirmed < WINDOW // 2:
            self._fill()

    def _fill(self) -> None:
        assert self._channel is not None
        while self._sent < len(self._bodies) and self._sent - self._confirmed < WINDOW:
            properties = pika.BasicProperties(
                delivery_mode=2, headers=dict(HEADERS), message_id=str(self._sent)
            )
            body = self._bodies[self._sent]
            self._channel.basic_publish("", self._queue, body, properties, mandatory=True)
            self._sent += 1
