"""Lifecycle of the current Kafka client: built on demand, pinged if suspect, replaced if stuck."""

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic
from weakref import WeakSet

from duebridge.ports.publisher import Outcome, Verdict
from duebridge_connectors.kafka.attempt import UNANSWERED, Client, Deadline

PING_S = 5.0
_SUSPECT_VERDICTS = frozenset({Verdict.INDETERMINATE, Verdict.UNAVAILABLE})

log = logging.getLogger(__name__)


class KafkaConnection(ABC, Generic[Client]):
    """Owns the current client. Thread-safe; no call blocks beyond its deadline.

    `replaced` counts the clients replaced because they did not answer.
    """

    _lock: threading.Lock
    _suspect: Client | None

    def __init__(self) -> None:
        self.replaced = 0
        self._is_closed = False
        self._reset()
        _connections.add(self)

    def client(self, deadline: Deadline) -> Client:
        """Return the current client, after a successful ping if it is suspect.

        Raises `BrokerUnavailable`; nothing was sent.
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
        """Refresh the metadata; a failure is ignored."""

    def observe(self, client: Client, outcomes: Sequence[Outcome]) -> None:
        """Replace the client after an unanswered delivery; mark it suspect after a lost one."""
        errors = [outcome for outcome in outcomes if outcome.verdict is not Verdict.CONFIRMED]
        if any(error.error_class == UNANSWERED.error_class for error in errors):
            self._replace(client, "deliveries remained unanswered")
        elif any(error.verdict in _SUSPECT_VERDICTS for error in errors):
            self._suspect = client

    @abstractmethod
    def close(self) -> None:
        """Close every client without waiting. Idempotent."""

    @abstractmethod
    def _current(self, deadline: Deadline) -> Client:
        """Return the current client; build one if there is none."""

    @abstractmethod
    def _verify(self, client: Client, deadline: Deadline) -> None:
        """Ping a broker and clear the suspicion. Raises `BrokerUnavailable`."""

    @abstractmethod
    def _replace(self, client: Client, why: str) -> None:
        """Discard a client, unless another thread already has."""

    @abstractmethod
    def _abandon(self) -> None:
        """Drop every client without touching its sockets."""

    @abstractmethod
    def _clear_clients(self) -> None:
        """Start without a client."""

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
        """Discard the parent's clients: a forked child has their sockets but not their threads."""
        self._abandon()
        self._reset()


_connections: WeakSet[KafkaConnection[Any]] = WeakSet()


def _reset_all_after_fork() -> None:
    for connection in list(_connections):
        connection._reset_after_fork()


os.register_at_fork(after_in_child=_reset_all_after_fork)
