"""The current client: built when first needed, asked when in doubt, replaced when wedged."""

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from weakref import WeakSet

from confluent_kafka import KafkaException

from duebridge.ports.publisher import CONFIRMED, BrokerUnavailable, Outcome, Verdict
from duebridge_connectors.kafka.deadline import Deadline
from duebridge_connectors.kafka.librdkafka.client import Client, NotSent
from duebridge_connectors.kafka.librdkafka.exchange import UNANSWERED
from duebridge_connectors.kafka.oauth import TokenFailed

PING_S = 5.0

log = logging.getLogger(__name__)


class Connection:
    """One client at a time for several threads, none of which waits beyond its own deadline.

    `replaced` counts the clients given up because they did not answer.
    """

    _lock: threading.Lock
    _client: Client | None
    _doubtful: Client | None

    def __init__(self, config: Mapping[str, object]) -> None:
        self.replaced = 0
        self._config = config
        self._is_closed = False
        self._start_afresh()
        _connections.add(self)

    def client(self, deadline: Deadline) -> Client:
        """Return a client that the broker has answered since anything went wrong.

        Raises `BrokerUnavailable`; nothing has been sent then.
        """
        client = self._built()
        if client is self._doubtful or client.is_away:
            self.ping(client, deadline)
        return client

    def ping(self, client: Client, deadline: Deadline) -> None:
        """Ask the broker for next to nothing. Raises `BrokerUnavailable`."""
        try:
            client.ping(deadline.left_s(PING_S))
        except NotSent as error:
            raise BrokerUnavailable(str(error)) from error
        if client is self._doubtful:
            self._doubtful = None

    def heed(self, client: Client, outcomes: Iterable[Outcome]) -> None:
        """Learn from what it made of them whether a client is to be doubted, or to be replaced."""
        others = [outcome for outcome in outcomes if outcome is not CONFIRMED]
        if UNANSWERED in others:
            self._replace(client)
        elif any(outcome.verdict in _DOUBTS for outcome in others):
            self._doubtful = client

    def close(self) -> None:
        """End the client at once. Idempotent."""
        with self._lock:
            self._is_closed = True
            client, self._client = self._client, None
        if client is not None:
            client.retire()

    def _built(self) -> Client:
        with self._lock:
            if self._is_closed:
                raise BrokerUnavailable("the publisher is closed")
            if self._client is None:
                self._client = self._build()
            return self._client

    def _build(self) -> Client:
        ask_for_token = self._config.get("oauth_cb")
        try:
            if callable(ask_for_token):
                ask_for_token("")  # what it raises, librdkafka would hide, and wait ten seconds
            return Client(self._config)
        except TokenFailed as error:
            raise BrokerUnavailable(str(error)) from error
        except KafkaException as error:  # a file of certificates has gone, for instance
            raise BrokerUnavailable(f"no client: {error.args[0].str()}") from error

    def _replace(self, client: Client) -> None:
        with self._lock:
            if self._client is not client:
                return
            self._client = None
            self.replaced += 1
        log.warning("Kafka client replaced: deliveries were left without an answer")
        client.retire()

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._client = None
        self._doubtful = None

    def _leave_to_the_parent(self) -> None:
        """In a forked child, which has the parent's sockets but none of its threads."""
        if self._client is not None:
            self._client.abandon()
        self._start_afresh()


_DOUBTS = frozenset({Verdict.INDETERMINATE, Verdict.UNAVAILABLE})

_connections: WeakSet[Connection] = WeakSet()


def _leave_all_to_the_parent() -> None:
    for connection in list(_connections):
        connection._leave_to_the_parent()


os.register_at_fork(after_in_child=_leave_all_to_the_parent)
