"""Queues and streams of a real RabbitMQ, and sources that read them over a proxy that can cut."""

import secrets
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

import pika
from pika.exceptions import AMQPError
from pika.spec import Basic

from duebridge.ports.source import Arrival, Source, SourcePlan
from duebridge_connectors.rabbitmq.source.rabbit_source import open_source
from tests.support.contract.source_under_test import Memory
from tests.support.network.proxy import Proxy, proxied
from tests.support.servers import wait_until

BROKER = "billing"
HEARTBEAT_S = 3  # a busy machine may stand still for longer than the two of a shorter one


class RabbitQueues:
    """`SourceUnderTest` of RabbitMQ; `kind` is that of its queues."""

    silent_s = 3.0 * HEARTBEAT_S

    def __init__(self, url: str, kind: str = "classic") -> None:
        self.url, self.kind = url, kind
        self._stack = ExitStack()
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel: Any = self._connection.channel()
        self.channel.confirm_delivery()
        self._proxies: dict[int, Proxy] = {}
        self._made: list[str] = []
        self.positions = Memory()

    def close(self) -> None:
        for name in self._made:
            self.channel.queue_delete(name)
        self._connection.close()
        self._stack.close()

    def abandon(self) -> None:
        """Close what the broker's death has left."""
        with suppress(AMQPError):
            self._connection.close()
        self._stack.close()

    def create(self, name: str = "", **arguments: object) -> str:
        name = name or self.missing()
        given = {"x-queue-type": self.kind, **arguments}
        self.channel.queue_declare(name, durable=True, arguments=given)
        self._made.append(name)
        return name

    def missing(self) -> str:
        return f"source-{secrets.token_hex(6)}"

    def send(self, name: str, bodies: Sequence[bytes]) -> None:
        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            channel: Any = connection.channel()
            confirms = Confirms(channel)
            properties = pika.BasicProperties(delivery_mode=2)
            for number, body in enumerate(bodies):
                properties.message_id = f"id-{number}-{secrets.token_hex(4)}"
                channel.basic_publish("", name, body, properties)
            channel._flush_output(lambda: confirms.count == len(bodies))

    def open(self, name: str, *, impatient: bool = False, **plan: Any) -> Source:
        heartbeat = HEARTBEAT_S if impatient else 30
        port = urlsplit(self.url).port
        assert port is not None
        proxy = self._stack.enter_context(proxied(port))
        source = self._source(name, proxy.port, heartbeat, **plan)
        self._proxies[id(source)] = proxy
        return source

    def open_direct(self, name: str, **plan: Any) -> Source:
        """Return an impatient one without a proxy, which reads ahead."""
        port = urlsplit(self.url).port
        assert port is not None
        return self._source(name, port, HEARTBEAT_S, **plan)

    def open_at(self, port: int) -> Source:
        return self._source("any", port, 30)

    def disconnect(self, source: Source) -> None:
        """Cut the connection; what was acknowledged before, which has no answer, has arrived."""
        consumer = getattr(source, "_source", source)._consumer
        if consumer is not None:
            answers: list[object] = []
            consumer._channel.queue_declare(consumer._queue, passive=True, callback=answers.append)
            wait_until(lambda: source.keep_alive() or answers, "the broker's answer")
        self._proxies[id(source)].cut()

    def _source(self, name: str, port: int, heartbeat: int, **plan: Any) -> Source:
        settings = {
            "type": "rabbitmq",
            "url": f"amqp://guest:guest@127.0.0.1:{port}/",
            "options": {"heartbeat": heartbeat},
        }
        given = {"queue": name, **plan.pop("source", {})}
        asked = SourcePlan("intake", BROKER, given, **plan)
        source = open_source(settings, asked, self.positions)
        return Keeping(source, self.positions) if self.kind == "stream" else source


class Confirms:
    """Counts what the broker confirmed on a channel; pika's own way waits for each in turn."""

    def __init__(self, channel: Any) -> None:
        self._all_up_to, self._beyond = 0, set[int]()
        channel._impl.confirm_delivery(self._note)

    @property
    def count(self) -> int:
        return self._all_up_to + len(self._beyond)

    def _note(self, frame: Any) -> None:
        answer = frame.method
        assert isinstance(answer, Basic.Ack), answer
        if answer.multiple:
            self._beyond -= set(range(self._all_up_to, answer.delivery_tag + 1))
            self._all_up_to = answer.delivery_tag
        else:
            self._beyond.add(answer.delivery_tag)
        while self._all_up_to + 1 in self._beyond:
            self._all_up_to += 1
            self._beyond.remove(self._all_up_to)


class Keeping:
    """A source whose places are kept once settled, as an intake does."""

    def __init__(self, source: Source, positions: Memory) -> None:
        self._source, self._positions = source, positions
        self.receive, self.lag = source.receive, source.lag
        self.keep_alive, self.close = source.keep_alive, source.close
        self.give_back, self.owns = source.give_back, source.owns

    def settle(self, arrivals: Sequence[Arrival]) -> None:
        self._source.settle(arrivals)
        place = arrivals[-1].place
        assert place is not None
        self._positions.write(place.log, place.offset)
