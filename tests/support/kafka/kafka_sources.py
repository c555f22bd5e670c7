"""The real Kafka under test for sources: topics, groups, a producer, a lost network."""

import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from stat import S_ISSOCK
from typing import Any
from unittest.mock import patch

from confluent_kafka import Producer

from duebridge.ports.source import Source, SourcePlan
from duebridge_connectors.kafka.broker import KAFKA
from duebridge_connectors.kafka.source import settings as consumer_settings
from tests.support.contract.source_under_test import Memory
from tests.support.kafka.kafka_broker import KafkaBroker

CLIENTS = ("kafka-python", "librdkafka")
PATIENT = {"SESSION_MS": consumer_settings.SESSION_MS}
LEAST = {"MAX_POLL_MS": 6000, "SESSION_MS": 6000, "HEARTBEAT_MS": 1000}  # that a broker allows


class KafkaSources:
    """A `SourceUnderTest`: each topic has a group of its own, named after it."""

    silent_s = 6.0

    def __init__(self, bootstrap: str, client: str) -> None:
        self.bootstrap, self.client = bootstrap, client
        self.topics = KafkaBroker(bootstrap)
        self._producer: Any = Producer({"bootstrap.servers": bootstrap})

    def close(self) -> None:
        with suppress(Exception):  # a test may have cut its connection
            self.topics.close()

    def create(self, partitions: int = 1, **configs: str) -> str:
        target = self.topics.missing_target()
        self.topics.create(target, partitions, configs)
        return str(target.topic)

    def missing(self) -> str:
        return f"missing-{secrets.token_hex(6)}"

    def send(self, name: str, bodies: Sequence[bytes | None]) -> None:
        for body in bodies:
            self.put(name, body)
        self.flush()

    def put(self, name: str, body: bytes | None, key: bytes | None = None, **more: Any) -> None:
        """Hand a record over; `flush` sends it."""
        self._producer.produce(name, body, key, **more)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    def open(
        self,
        name: str,
        *,
        impatient: bool = False,
        options: dict[str, Any] | None = None,
        group: str = "",
        **plan: Any,
    ) -> Source:
        with patch.multiple(consumer_settings, **(LEAST if impatient else PATIENT)):
            return open_source(self.bootstrap, self.client, name, options, group, **plan)

    def open_at(self, port: int) -> Source:
        return open_source(f"127.0.0.1:{port}", self.client, "absent")

    def disconnect(self, source: Source) -> None:
        del source
        end_connections(int(self.bootstrap.rpartition(":")[2]))


def end_connections(port: int) -> None:
    """End every connection that this process has to the broker, as a network does."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if S_ISSOCK(os.fstat(number).st_mode):  # of another, the copy would stay open
                _end_if_to(port, os.dup(number))


def _end_if_to(port: int, number: int) -> None:
    with socket.socket(fileno=number) as each:
        if each.family == socket.AF_INET and each.getpeername()[1] == port:
            each.shutdown(socket.SHUT_RDWR)


def open_member(bootstrap: str, client: str, topic: str) -> Source:
    """Return a source in small batches that is given up soon: after six seconds."""
    with patch.multiple(consumer_settings, **LEAST):
        return open_source(bootstrap, client, topic, batch=20)


def open_source(
    server: str,
    client: str,
    name: str,
    options: dict[str, Any] | None = None,
    group: str = "",
    **plan: Any,
) -> Source:
    settings = {
        "type": "kafka",
        "bootstrap_servers": [server],
        "client": client,
        "options": options or {},
    }
    source = {"topic": name, "group": group or f"group-of-{name}"}
    return KAFKA.open_source(settings, SourcePlan("i", "orders", source, **plan), Memory())
