"""Publishes through kafka-python, the default client."""

from collections.abc import Mapping

from duebridge_connectors.kafka.kafka_python.attempt import KafkaPythonAttempt
from duebridge_connectors.kafka.kafka_python.client import KafkaPythonClient
from duebridge_connectors.kafka.kafka_python.connection import KafkaPythonConnection
from duebridge_connectors.kafka.publisher import KafkaPublisher


def open_kafka_python(
    config: Mapping[str, object], publish_deadline_s: float
) -> KafkaPublisher[KafkaPythonClient]:
    """Return a publisher for a `KafkaProducer` configuration; it connects on first use."""
    bulk = KafkaPythonConnection(config, publish_deadline_s)
    single = KafkaPythonConnection({**config, "batch_size": 0}, publish_deadline_s)
    return KafkaPublisher(KafkaPythonAttempt, bulk, single, publish_deadline_s)
