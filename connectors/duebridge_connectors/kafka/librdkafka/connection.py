"""Manages the current librdkafka client; building one does not block."""

from collections.abc import Mapping

from duebridge.ports.publisher import BrokerUnavailable
from duebridge_connectors.kafka.attempt import Deadline
from duebridge_connectors.kafka.connection import PING_S, KafkaConnection
from duebridge_connectors.kafka.errors import RequestFailed
from duebridge_connectors.kafka.librdkafka.client import LibrdkafkaClient, building_client
from duebridge_connectors.kafka.login import LOGIN, Login


class LibrdkafkaConnection(KafkaConnection[LibrdkafkaClient]):
    """Builds, pings and replaces librdkafka clients."""

    _client: LibrdkafkaClient | None

    def __init__(self, config: Mapping[str, object]) -> None:
        self._login = config.get(LOGIN)
        self._config = {name: config[name] for name in config if name != LOGIN}
        super().__init__()

    def close(self) -> None:
        """Close the client without waiting. Idempotent."""
        with self._lock:
            self._is_closed = True
            client, self._client = self._client, None
        if client is not None:
            client.retire()

    def _current(self, deadline: Deadline) -> LibrdkafkaClient:
        del deadline
        with self._lock:
            if self._is_closed:
                raise BrokerUnavailable("the publisher is closed")
            if self._client is None:
                self._client = self._build()
            return self._client

    def _verify(self, client: LibrdkafkaClient, deadline: Deadline) -> None:
        self._log_in_as_now(client)
        try:
            client.ping(deadline.left_s(PING_S))
        except RequestFailed as error:
            raise BrokerUnavailable(str(error)) from error
        if client is self._suspect:
            self._suspect = None

    def _build(self) -> LibrdkafkaClient:
        with building_client(self._config.get("oauth_cb")):
            client = LibrdkafkaClient(self._config)
            self._log_in_as_now(client)
            return client

    def _log_in_as_now(self, client: LibrdkafkaClient) -> None:
        """Let the client's next connections use the user and password of now."""
        found = self._login.current() if isinstance(self._login, Login) else None
        if found is not None:
            client.log_in(found)

    def _is_disconnected(self, client: LibrdkafkaClient) -> bool:
        return client.is_away

    def _replace(self, client: LibrdkafkaClient, why: str) -> None:
        with self._lock:
            if self._client is not client:
                return
            self._client = None
            self._count_replacement(why)
        client.retire()

    def _abandon(self) -> None:
        if self._client is not None:
            self._client.abandon()

    def _clear_clients(self) -> None:
        self._client = None
