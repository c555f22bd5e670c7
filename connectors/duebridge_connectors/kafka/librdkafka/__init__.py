"""Publishes through librdkafka (confluent-kafka): `client: librdkafka`."""

from collections.abc import Mapping

from duebridge_connectors.kafka.librdkafka.attempt import LibrdkafkaAttempt
from duebridge_connectors.kafka.librdkafka.client import LibrdkafkaClient
from duebridge_connectors.kafka.librdkafka.connection import LibrdkafkaConnection
from duebridge_connectors.kafka.librdkafka.settings import producer_config
from duebridge_connectors.kafka.login import LOGIN, Login
from duebridge_connectors.kafka.publisher import KafkaPublisher


def open_publisher(
    settings: Mapping[str, object], publish_deadline_s: float
) -> KafkaPublisher[LibrdkafkaClient]:
    """Return a publisher for `client: librdkafka`; it connects on first use.

    Raises `ConfigError` for invalid settings.
    """
    config = {**producer_config(settings, publish_deadline_s), LOGIN: Login(settings)}
    return open_librdkafka(config, publish_deadline_s)


def open_librdkafka(
    config: Mapping[str, object], publish_deadline_s: float
) -> KafkaPublisher[LibrdkafkaClient]:
    """Return a publisher for a `confluent_kafka.Producer` configuration."""
    bulk = LibrdkafkaConnection(config)
    single = LibrdkafkaConnection({**config, "batch.num.messages": 1})
    return KafkaPublisher(LibrdkafkaAttempt, bulk, single, publish_deadline_s)
