"""The current client: built when first needed, checked when in doubt, replaced when wedged."""

import logging
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from weakref import WeakSet

from duebridge.ports.publisher import BrokerUnavailable, Verdict
from duebridge_connectors.kafka.answers import verdict_of
from duebridge_connectors.kafka.client import Client
from duebridge_connectors.kafka.deadline import Deadline
from duebridge_connectors.kafka.errors import NotSent, Unanswered
from duebridge_connectors.kafka.exchange import Exchange

# A client that was given up keeps its thread until its requests end. So many at once are borne.
MOST_RETIRING = 3
PING_S = 5.0
REFRESH_S = 1.0

log = logging.getLogger(__name__)


class Connection:
    """One client at a time for several threads, none of which waits beyond its own deadline.

    `replaced` counts the clients given up because they did not answer.
    """

    _lock: threading.Lock
    _building: "Future[Client] | None"
    _doubtful: Client | None
    _clients: list[Client]  # the current one, and those given up that still run

    def __init__(self, config: Mapping[str, object], grace_s: float) -> None:
        self.replaced = 0
        self._config = config
        self._grace_s = grace_s
        self._abandoned: list[Client] = []
        self._is_closed = False
        self._start_afresh()
        _connections.add(self)

    def client(self, deadline: Deadline) -> Client:
        """Return a client that the broker has answered since anything went wrong.

        Raises `BrokerUnavailable`; nothing has been sent then.
        """
        client = self._built(deadline)
        if client is self._doubtful:
            self.ping(client, deadline)
        return client

    def ping(self, client: Client, deadline: Deadline) -> None:
        """Ask the broker for nothing. Without an answer give the client up.

        Raises `BrokerUnavailable`.
        """
        try:
            client.ask((), deadline.left_s(PING_S))
        except NotSent as error:
            self._replace(client, str(error))
            raise BrokerUnavailable(str(error)) from error
        if client is self._doubtful:
            self._doubtful = None
            # All the brokers it knows may be gone, and others come: it would not ask by itself.
            client.refresh(deadline.left_s(REFRESH_S))

    def refresh(self, deadline: Deadline) -> None:
        """Learn anew who leads the partitions, if a client can say."""
        with suppress(BrokerUnavailable):
            self.client(deadline).refresh(deadline.left_s(REFRESH_S))

    def heed(self, client: Client, exchange: Exchange) -> None:
        """Learn from the answers whether this client is to be doubted, or to be replaced."""
        errors = [answer for answer in exchange.answers if answer is not None]
        if any(isinstance(error, Unanswered) for error in errors):
            self._replace(client, "deliveries were left without an answer")
        elif any(verdict_of(error) in _DOUBTS for error in errors):
            self._doubtful = client

    def close(self) -> None:
        """End every client at once. Idempotent."""
        with self._lock:
            self._is_closed = True
            building, self._building = self._building, None
        if building is not None:
            building.add_done_callback(_retire_at_once)
        for client in self._clients:
            client.retire(0)

    def _built(self, deadline: Deadline) -> Client:
        with self._lock:
            if self._is_closed:
                raise BrokerUnavailable("the publisher is closed")
            if self._building is None or _has_failed(self._building):
                self._building = self._build()
            building = self._building
        try:
            return building.result(deadline.left_s())
        except Exception as error:  # its construction failed, or takes longer
            raise BrokerUnavailable(f"no connection: {_words(error)}") from error

    def _build(self) -> "Future[Client]":
        self._clients = [client for client in self._clients if client.is_alive()]
        if len(self._clients) >= MOST_RETIRING:
            raise BrokerUnavailable(f"{MOST_RETIRING} clients that were given up have not ended")
        building: Future[Client] = Future()
        threading.Thread(target=self._construct, args=(building,), daemon=True).start()
        return building

    def _construct(self, building: "Future[Client]") -> None:
        try:
            client = Client(self._config)
        except Exception as error:
            building.set_exception(error)
        else:
            self._clients.append(client)
            building.set_result(client)

    def _replace(self, client: Client, why: str) -> None:
        with self._lock:
            if self._building is None or _client_of(self._building) is not client:
                return
            self._building = None
            self.replaced += 1
        log.warning("Kafka client replaced: %s", why)
        threading.Thread(target=client.retire, args=(self._grace_s,), daemon=True).start()

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._building = None
        self._doubtful = None
        self._clients = []

    def _leave_to_the_parent(self) -> None:
        """In a forked child, which has the parent's sockets but none of its threads."""
        for client in self._clients:
            client.abandon()
        self._abandoned += self._clients  # or their destructors would close the parent's sockets
        self._start_afresh()


_DOUBTS = frozenset({Verdict.INDETERMINATE, Verdict.UNAVAILABLE})

_connections: WeakSet[Connection] = WeakSet()


def _words(error: Exception) -> str:
    """Return what an error says, with its name: kafka-python's say it by themselves."""
    name, text = type(error).__name__, str(error)
    return text if name in text else f"{name} {text}"


def _has_failed(building: "Future[Client]") -> bool:
    return building.done() and building.exception() is not None


def _client_of(building: "Future[Client]") -> Client | None:
    return building.result() if building.done() and not _has_failed(building) else None


def _retire_at_once(building: "Future[Client]") -> None:
    client = _client_of(building)
    if client is not None:
        client.retire(0)


def _leave_all_to_the_parent() -> None:
    for connection in list(_connections):
        connection._leave_to_the_parent()


os.register_at_fork(after_in_child=_leave_all_to_the_parent)
