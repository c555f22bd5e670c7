"""The real RabbitMQ under test, and a way round the publisher: a connection of its own."""

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pika

from duebridge.envelope import Properties, Target
from duebridge.ports.publisher import Delivery
from duebridge_connectors.rabbitmq import open_publisher
from duebridge_connectors.rabbitmq.publishing.publisher import RabbitPublisher
from tests.support.contract.broker_under_test import BRIDGE_ID, Features, Received, delivery

MIB = 1024 * 1024


class RabbitBroker:
    """Direct exchanges, each with a durable queue of the same name; `close` deletes them."""

    features = Features(
        broker="rabbitmq",
        largest_body=MIB,
        keys=False,
        null_body=False,
        typed_headers=True,
        null_header_values=True,
        ordered_headers=False,  # RabbitMQ 4 sorts them by name
        repeated_header_names=False,
        properties=True,
        missing_target=True,
        size_limit=True,
        invalid=True,
    )

    def __init__(self, url: str) -> None:
        self.url = url
        self._created: set[str] = set()
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel: Any = self._connection.channel()

    def close(self) -> None:
        for name in sorted(self._created):
            self.channel.queue_delete(name)
            self.channel.exchange_delete(name)
        self._connection.close()

    def keep(self) -> None:
        """Let `close` delete nothing."""
        self._created.clear()

    def open(
        self, deadline_s: float, options: Mapping[str, object] | None = None
    ) -> RabbitPublisher:
        settings = {"type": "rabbitmq", "url": self.url, "options": options or {}}
        return open_publisher(settings, deadline_s)

    def open_at(self, port: int, deadline_s: float) -> RabbitPublisher:
        return open_publisher({"url": f"amqp://guest:guest@127.0.0.1:{port}/"}, deadline_s)

    def missing_target(self) -> Target:
        return Target("rabbitmq", exchange=f"contract-{secrets.token_hex(6)}", routing_key="due")

    def create(self, target: Target, **arguments: object) -> None:
        name = self._name(target)
        self._created.add(name)
        self.channel.exchange_declare(name, "direct", durable=True)
        self.channel.queue_declare(name, durable=True, arguments=arguments)
        self.channel.queue_bind(name, name, target.routing_key)

    def delete(self, target: Target) -> None:
        self.channel.exchange_delete(self._name(target))

    def count(self, target: Target) -> int:
        """Return how many messages the target's queue holds."""
        return int(
            self.channel.queue_declare(self._name(target), passive=True).method.message_count
        )

    def read_all(self, target: Target) -> Sequence[Received]:
        return [_received(properties, body) for properties, body in self.read_raw(target)]

    def read_raw(self, target: Target) -> list[tuple[pika.BasicProperties, bytes]]:
        """Return what the queue holds as pika gives it, and leave it there."""
        left = self.count(target)
        found: list[tuple[pika.BasicProperties, bytes]] = []
        channel = self._connection.channel()
        while len(found) < left:
            for _, properties, body in channel.consume(self._name(target)):
                found.append((properties, body))
                if len(found) == left:
                    break
        channel.close()
        return found

    def too_large(self, target: Target) -> Delivery:
        return delivery(target, bytes(128 * MIB + 1))

    def invalid(self) -> tuple[Delivery, Delivery]:
        target = self.missing_target()
        self.create(target)
        return delivery(target, properties=Properties(expiration="soon")), delivery(target)

    def _name(self, target: Target) -> str:
        assert target.exchange is not None
        return target.exchange


def _received(properties: Any, body: bytes) -> Received:
    headers = tuple((n, v) for n, v in (properties.headers or {}).items() if n != BRIDGE_ID)
    given = {name: getattr(properties, name) for name in Properties.__struct_fields__}
    return Received(body, properties.message_id, None, headers, Properties(**given))


def seconds_since(start: float) -> float:
    return time.monotonic() - start
