"""Manages the current kafka-python client; a background thread builds it, since that blocks."""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress

from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.kafka.attempt import Deadline
from duebridge_connectors.kafka.connection import PING_S, KafkaConnection
from duebridge_connectors.kafka.errors import RequestFailed, words_of
from duebridge_connectors.kafka.kafka_python.client import KafkaPythonClient

# Replaced clients keep a thread until their requests end; this bounds them.
MOST_RETIRING = 3
REFRESH_S = 1.0

_Building = Future[KafkaPythonClient]


class KafkaPythonConnection(KafkaConnection[KafkaPythonClient]):
    """Builds, pings and replaces kafka-python clients.

    A replaced client has `grace_s` seconds to finish its requests in flight.
    """

    _building: "_Building | None"
    _clients: list[KafkaPythonClient]  # the current one, and replaced ones still stopping

    def __init__(self, config: Mapping[str, object], grace_s: float) -> None:
        self._config = config
        self._grace_s = grace_s
        self._abandoned: list[KafkaPythonClient] = []
        super().__init__()

    def refresh(self, deadline: Deadline) -> None:
        """Refresh the metadata; a failure is ignored."""
        with suppress(BrokerUnavailable):
            self.client(deadline).refresh(deadline.left_s(REFRESH_S))

    def close(self) -> None:
        """Close every client without waiting. Idempotent."""
        with self._lock:
            self._is_closed = True
            building, self._building = self._building, None
        if building is not None:
            building.add_done_callback(_retire_at_once)
        for client in self._clients:
            client.retire(0)

    def _current(self, deadline: Deadline) -> KafkaPythonClient:
        with self._lock:
            if self._is_closed:
                raise BrokerUnavailable("the publisher is closed")
            if self._building is None or _has_failed(self._building):
                self._building = self._build()
            building = self._building
        try:
            return building.result(deadline.left_s())
        except Exception as error:  # the constructor failed, or has not returned
            text = f"no connection: {type(error).__name__}: {words_of(error)}"
            raise BrokerUnavailable(text) from error

    def _verify(self, client: KafkaPythonClient, deadline: Deadline) -> None:
        try:
            client.ping(deadline.left_s(PING_S))
        except RequestFailed as error:
            self._replace(client, str(error))
            raise BrokerUnavailable(str(error)) from error
        if client is self._suspect:
            self._suspect = None
            # All brokers in its metadata may have been replaced; it does not refresh by itself.
            client.refresh(deadline.left_s(REFRESH_S))

    def _build(self) -> _Building:
        self._clients = [client for client in self._clients if client.is_alive()]
        if len(self._clients) >= MOST_RETIRING:
            raise BrokerUnavailable(f"{MOST_RETIRING} replaced clients have not ended")
        building: _Building = Future()
        threading.Thread(target=self._construct, args=(building,), daemon=True).start()
        return building

    def _construct(self, building: _Building) -> None:
        try:
            client = KafkaPythonClient(self._config)
        except Exception as error:
            building.set_exception(error)
        else:
            self._clients.append(client)
            building.set_result(client)

    def _replace(self, client: KafkaPythonClient, why: str) -> None:
        with self._lock:
            if self._building is None or _client_of(self._building) is not client:
                return
            self._building = None
            self._count_replacement(why)
        threading.Thread(target=client.retire, args=(self._grace_s,), daemon=True).start()

    def _abandon(self) -> None:
        for client in self._clients:
            client.abandon()
        self._abandoned += self._clients  # keeps destructors from closing the parent's sockets

    def _clear_clients(self) -> None:
        self._building = None
        self._clients = []


def _has_failed(building: _Building) -> bool:
    return building.done() and building.exception() is not None


def _client_of(building: _Building) -> KafkaPythonClient | None:
    return building.result() if building.done() and not _has_failed(building) else None


def _retire_at_once(building: _Building) -> None:
    client = _client_of(building)
    if client is not None:
        client.retire(0)
