"""The real Kafka under test through librdkafka."""

from collections.abc import Mapping
from dataclasses import replace

from duebridge_connectors.kafka.librdkafka import LibrdkafkaPublisher, open_publisher
from tests.contract.kafka_broker import KafkaBroker


class LibrdkafkaBroker(KafkaBroker):
    """A `KafkaBroker` whose publishers are of `client: librdkafka`."""

    features = replace(KafkaBroker.features, broker="librdkafka")

    def open(
        self, deadline_s: float, options: Mapping[str, object] | None = None
    ) -> LibrdkafkaPublisher:
        settings = {"bootstrap_servers": [self.bootstrap], "options": options or {}}
        return open_publisher(settings, deadline_s)

    def open_at(self, port: int, deadline_s: float) -> LibrdkafkaPublisher:
        return open_publisher({"bootstrap_servers": [f"127.0.0.1:{port}"]}, deadline_s)
