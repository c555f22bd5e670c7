"""Opens a source; imports pika."""

from collections.abc import Mapping
from functools import partial

from duebridge.ports.source import Positions, Source, SourcePlan
from duebridge_connectors.rabbitmq import quiet_client
from duebridge_connectors.rabbitmq.settings import connection_parameters
from duebridge_connectors.rabbitmq.source.rabbit_source import RabbitSource


def open_source(settings: Mapping[str, object], plan: SourcePlan, positions: Positions) -> Source:
    """Return a source, which connects on first use. Raises `ConfigError`."""
    quiet_client()
    return RabbitSource(partial(connection_parameters, settings), plan, positions)
