"""RabbitMQ connector. Imports pika only when a publisher opens."""

import logging
from collections.abc import Mapping
from functools import partial

from duebridge.ports.publisher import Publisher

__all__ = ["open_publisher", "quiet_client"]


def open_publisher(settings: Mapping[str, object], publish_deadline_s: float) -> Publisher:
    """Return a publisher for a broker of `type: rabbitmq`; it connects on first use.

    Raises `ConfigError` for invalid settings.
    """
    from duebridge_connectors.rabbitmq.publishing.publisher import RabbitPublisher
    from duebridge_connectors.rabbitmq.settings import connection_parameters

    quiet_client()
    read = partial(connection_parameters, settings)
    return RabbitPublisher(read(), publish_deadline_s, read)


def quiet_client() -> None:
    """Silence pika, unless its level was set: it logs a traceback for each failed connection."""
    pika = logging.getLogger("pika")
    if pika.level == logging.NOTSET:
        pika.setLevel(logging.CRITICAL)
