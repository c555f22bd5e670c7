"""The current Kafka client: built when first needed, pinged when in doubt, replaced when stuck."""

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic
from weakref import WeakSet

from duebridge.ports.publisher import CONFIRMED, Outcome, Verdict
from duebridge_connectors.kafka.attempt import UNANSWERED, Client, Deadline

PING_S = 5.0
_SUSPECT_VERDICTS = frozenset({Verdict.INDETERMINATE, Verdict.UNAVAILABLE})

log = logging.getLogger(__name__)


class KafkaConnection(ABC, Generic[Client]):
    """The current client. Several threads share it; none waits beyond its own deadline.

    `replaced` counts the clients given up because they did not answer.
    """

    _lock: threading.Lock
    _suspect: Client | None

    def __init__(self) -> None:
        self.replaced = 0
        self._is_closed = False
        self._reset()
        _connections.add(self)

    def client(self, deadline: Deadline) -> Client:
        """Return a client that a broker has answered since the last error.

        Raises `BrokerUnavailable`; nothing was sent then.
        """
        client = self._current(deadline)
        if client is self._suspect or self._is_disconnected(client):
            self._verify(client, deadline)
        return client

    def ping(self, deadline: Deadline) -> None:
        """Raise `BrokerUnavailable` unless a broker answers within `PING_S`."""
        limit = Deadline(deadline.left_s(PING_S))
        self._verify(self.client(limit), limit)

    def refresh(self, deadline: Deadline) -> None:
        """Ask who leads the partitions, if a broker can say."""

    def observe(self, client: Client, outcomes: Sequence[Outcome]) -> None:
        """Doubt the client, or replace it, for the outcomes of a send."""
        errors = [outcome for outcome in outcomes if outcome is not CONFIRMED]
        if UNANSWERED in errors:
            self._replace(client, "deliveries were left without an answer")
        elif any(error.verdict in _SUSPECT_VERDICTS for error in errors):
            self._suspect = client

    @abstractmethod
    def close(self) -> None:
        """End every client at once. Idempotent."""

    @abstractmethod
    def _current(self, deadline: Deadline) -> Client:
        """Return the current client, building one where there is none."""

    @abstractmethod
    def _verify(self, client: Client, deadline: Deadline) -> None:
        """Ping a broker; ends the doubt. Raises `BrokerUnavailable`."""

    @abstractmethod
    def _replace(self, client: Client, why: str) -> None:
        """Give a client up, unless it was replaced already."""

    @abstractmethod
    def _abandon(self) -> None:
        """Forget every client without touching its sockets."""

    @abstractmethod
    def _clear_clients(self) -> None:
        """Begin without a client."""

    def _is_disconnected(self, client: Client) -> bool:
        del client
        return False

    def _count_replacement(self, why: str) -> None:
        self.replaced += 1
        log.warning("Kafka client replaced: %s", why)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._suspect = None
        self._clear_clients()

    def _reset_after_fork(self) -> None:
        """In a forked child, which has the parent's sockets but none of its threads."""
        self._abandon()
        self._reset()


_connections: WeakSet[KafkaConnection[Any]] = WeakSet()


def _reset_all_after_fork() -> None:
    for connection in list(_connections):
        connection._reset_after_fork()


os.register_at_fork(after_in_child=_reset_all_after_fork)
