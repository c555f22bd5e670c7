"""Kafka connector. Imports kafka-python or librdkafka only when a publisher opens."""

import logging
import warnings
from collections.abc import Mapping

from duebridge.errors import ConfigError
from duebridge.ports.publisher import Publisher
from duebridge_connectors.kafka.login import LOGIN, Login

__all__ = ["import_client", "open_publisher"]


def open_publisher(settings: Mapping[str, object], publish_deadline_s: float) -> Publisher:
    """Return a publisher for a broker of `type: kafka`; it connects on first use.

    Raises `ConfigError` for invalid settings.
    """
    import_client()
    from duebridge_connectors.kafka.kafka_python import open_kafka_python
    from duebridge_connectors.kafka.settings import client_of, producer_config

    if client_of(settings) == "librdkafka":
        return _open_librdkafka(settings, publish_deadline_s)
    config = {**producer_config(settings, publish_deadline_s), LOGIN: Login(settings)}
    return open_kafka_python(config, publish_deadline_s)


def import_client() -> None:
    """Import kafka-python without deprecation warnings, and keep passwords out of its log."""
    with warnings.catch_warnings():
        # kafka-python calls deprecated functions; the import would fail under -W error.
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka  # noqa: F401
    for name in ("kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser"):
        logging.getLogger(name).addFilter(_is_above_debug)


def _open_librdkafka(settings: Mapping[str, object], publish_deadline_s: float) -> Publisher:
    try:
        from duebridge_connectors.kafka import librdkafka
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"client: librdkafka needs the Python package {error.name}, which is not installed;"
            " type: pip install 'duebridge[kafka,librdkafka]'"
        ) from error
    return librdkafka.open_publisher(settings, publish_deadline_s)


def _is_above_debug(record: logging.LogRecord) -> bool:
    """Drop DEBUG records: traces of requests and configurations contain the login's password."""
    return record.levelno > logging.DEBUG
