"""Kafka through librdkafka (confluent-kafka), the fast client of `client: librdkafka`."""

from collections.abc import Mapping

from duebridge_connectors.kafka.librdkafka.publisher import LibrdkafkaPublisher
from duebridge_connectors.kafka.librdkafka.settings import producer_config

__all__ = ["LibrdkafkaPublisher", "open_publisher"]


def open_publisher(
    settings: Mapping[str, object], publish_deadline_s: float
) -> LibrdkafkaPublisher:
    """Return a publisher for `client: librdkafka`; it connects when it is first used.

    Raises `ConfigError` for settings that cannot be used.
    """
    return LibrdkafkaPublisher(producer_config(settings, publish_deadline_s), publish_deadline_s)
