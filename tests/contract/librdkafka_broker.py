"""The real Kafka under test through librdkafka."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from duebridge_connectors.kafka.librdkafka import open_publisher
from duebridge_connectors.kafka.publisher import KafkaPublisher
from tests.support.kafka_broker import KafkaBroker


class LibrdkafkaBroker(KafkaBroker):
    """A `KafkaBroker` whose publishers are of `client: librdkafka`."""

    features = replace(KafkaBroker.features, broker="librdkafka")

    def open(
        self, deadline_s: float, options: Mapping[str, object] | None = None
    ) -> KafkaPublisher[Any]:
        settings = {"bootstrap_servers": [self.bootstrap], "options": options or {}}
        return open_publisher(settings, deadline_s)

    def open_at(self, port: int, deadline_s: float) -> KafkaPublisher[Any]:
        return open_publisher({"bootstrap_servers": [f"127.0.0.1:{port}"]}, deadline_s)
