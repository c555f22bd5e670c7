"""Kafka, through kafka-python. Where an error gets its verdict: `connectors.kafka.errors`."""

import warnings
from collections.abc import Mapping

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 and 3.12 call deprecated (3.13 does not):
    # whoever makes warnings errors could not import it.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401

from connectors.kafka.publisher import KafkaPublisher
from connectors.kafka.settings import producer_config

__all__ = ["KafkaPublisher", "open_publisher"]


def open_publisher(settings: Mapping[str, object], publish_deadline_s: float) -> KafkaPublisher:
    """Return a publisher for a broker of `type: kafka`; it connects when it is first used.

    Raises `ConfigError` for settings that cannot be used.
    """
    return KafkaPublisher(producer_config(settings, publish_deadline_s), publish_deadline_s)
