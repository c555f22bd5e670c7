"""RabbitMQ, through pika. `errors` gives each error its verdict."""

import logging
from collections.abc import Mapping

from duebridge_connectors.rabbitmq.publisher import RabbitPublisher
from duebridge_connectors.rabbitmq.settings import connection_parameters

__all__ = ["RabbitPublisher", "open_publisher"]


def open_publisher(settings: Mapping[str, object], publish_deadline_s: float) -> RabbitPublisher:
    """Return a publisher for a broker of `type: rabbitmq`; it connects when it is first used.

    Raises `ConfigError` for settings that cannot be used.
    """
    pika = logging.getLogger("pika")
    if pika.level == logging.NOTSET:
        # Each try to connect is half a dozen errors and a traceback to it; `link` logs one line.
        pika.setLevel(logging.CRITICAL)
    return RabbitPublisher(connection_parameters(settings), publish_deadline_s)
