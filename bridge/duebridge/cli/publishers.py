"""The brokers' publishers, and which of them a configuration uses."""

from contextlib import ExitStack

from duebridge.config.load import resolved_broker
from duebridge.config.models import Config
from duebridge.ports.plugins import call_connector
from duebridge.ports.publisher import Publisher

GROUP = "duebridge.publishers"


def open_publishers(config: Config, stack: ExitStack) -> dict[str, Publisher]:
    """Return a publisher per broker in use; the stack closes them, also when one cannot be opened.

    Raises `ConfigError`, for a missing extra with the line to type.
    """
    publishers = {}
    for name in used_brokers(config):
        publishers[name] = _open(config, name)
        stack.callback(publishers[name].close)
    return publishers


def used_brokers(config: Config) -> list[str]:
    """Return the brokers that a route or a dead letter names, each once."""
    targets = [route.target for route in config.routes.values()]
    targets += [route.dead_letter for route in config.routes.values() if route.dead_letter]
    return sorted({target.broker for target in targets})


def _open(config: Config, name: str) -> Publisher:
    settings = resolved_broker(config, name)
    deadline_s = config.worker.publish_deadline / 1000
    publisher: Publisher = call_connector(GROUP, name, str(settings["type"]), settings, deadline_s)
    return publisher
