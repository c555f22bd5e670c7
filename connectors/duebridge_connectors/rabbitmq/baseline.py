"""pika with confirms, without the bridge: the baseline of `duebridge bench`."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import pika
from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.exceptions import AMQPError
from pika.spec import Basic

from duebridge.ports.baseline import DEADLINE_S, HEADERS
from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.rabbitmq.settings import connection_parameters

WINDOW = 1000  # unconfirmed messages in bulk
OPEN_TIMEOUT_S = 15.0


def with_channel(parameters: pika.connection.Parameters, call: Callable[[Any], object]) -> None:
    """Make a call on a channel of its own; raises `BrokerUnavailable`."""
    try:
        connection = pika.BlockingConnection(parameters)
        call(connection.channel())
        connection.close()
    except AMQPError as error:
        raise BrokerUnavailable(f"rabbitmq: {type(error).__name__} {error}") from error


class RabbitBaseline:
    """A `BaselineClient` with a `SelectConnection` on its own thread and a durable queue."""

    def __init__(self, parameters: pika.connection.Parameters, name: str) -> None:
        self.target = {"exchange": "", "routing_key": name}
        self._name = name
        self._parameters = parameters
        with_channel(parameters, lambda channel: channel.queue_declare(name, durable=True))
        self._loop: Any = IOLoop()
        self._opened = threading.Event()
        self._channel: Any = None
        self._unconfirmed: dict[int, Callable[[], None]] = {}  # by delivery tag, rising
        self._last_tag = 0
        self._thread = threading.Thread(target=self._run, name="baseline-rabbitmq", daemon=True)
        self._thread.start()
        if not self._opened.wait(OPEN_TIMEOUT_S):
            raise BrokerUnavailable(f"rabbitmq: not connected within {OPEN_TIMEOUT_S:g} s")

    def publish_all(self, bodies: Sequence[bytes]) -> None:
        """Publish with a window of unconfirmed messages; see `BaselineClient`."""
        bulk = _Bulk(self, bodies)
        self._loop.add_callback_threadsafe(bulk.fill)
        if not bulk.is_done.wait(DEADLINE_S):
            raise BrokerUnavailable(f"rabbitmq: not all confirmed within {DEADLINE_S:g} s")

    def publish(self, body: bytes, confirmed: Callable[[], None]) -> None:
        """Publish one at once; see `BaselineClient`."""
        self._loop.add_callback_threadsafe(partial(self.send, body, confirmed))

    def send(self, body: bytes, confirmed: Callable[[], None]) -> None:
        """Publish one; on the connection's thread only."""
        self._last_tag += 1
        self._unconfirmed[self._last_tag] = confirmed
        properties = pika.BasicProperties(
            delivery_mode=2, headers=dict(HEADERS), message_id=HEADERS[0][1]
        )
        self._channel.basic_publish("", self._name, body, properties, mandatory=True)

    def empty(self) -> None:
        """Purge the queue: a long one is slower."""
        with_channel(self._parameters, lambda channel: channel.queue_purge(self._name))

    def close(self) -> None:
        """Delete the queue and close; see `BaselineClient`."""
        self._loop.add_callback_threadsafe(self._connection.close)
        self._thread.join()
        with_channel(self._parameters, lambda channel: channel.queue_delete(self._name))

    # On the connection's thread.

    def _run(self) -> None:
        self._connection: Any = SelectConnection(
            self._parameters,
            on_open_callback=lambda opened: opened.channel(on_open_callback=self._on_channel),
            on_close_callback=lambda *_: self._loop.stop(),
            custom_ioloop=self._loop,
        )
        self._loop.start()
        self._loop.close()

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._opened.set())

    def _on_confirm(self, frame: Any) -> None:
        assert isinstance(frame.method, Basic.Ack)  # noqa: S101 - nothing here refuses a message
        tag = frame.method.delivery_tag
        tags = [tag]
        if frame.method.multiple:
            tags = list(takewhile(lambda unconfirmed: unconfirmed <= tag, self._unconfirmed))
        for confirmed in tags:
            self._unconfirmed.pop(confirmed)()


class _Bulk:
    """Publishes bodies with at most `WINDOW` unconfirmed."""

    def __init__(self, client: RabbitBaseline, bodies: Sequence[bytes]) -> None:
        self.is_done = threading.Event()
        self._client = client
        self._bodies = bodies
        self._sent = self._confirmed = 0

    def fill(self) -> None:
        """Publish until the window is full."""
        while self._sent < len(self._bodies) and self._sent - self._confirmed < WINDOW:
            self._sent += 1
            self._client.send(self._bodies[self._sent - 1], self._on_confirm)

    def _on_confirm(self) -> None:
        self._confirmed += 1
        if self._confirmed == len(self._bodies):
            self.is_done.set()
        elif self._sent - self._confirmed < WINDOW // 2:
            self.fill()


def open_baseline(settings: Mapping[str, object], name: str) -> RabbitBaseline:
    """Return the baseline client; see `duebridge.ports.baseline`."""
    return RabbitBaseline(connection_parameters(settings), name)
