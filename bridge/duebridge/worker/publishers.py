"""Opens the publishers of the brokers that a configuration uses."""

from contextlib import ExitStack
from functools import partial

from duebridge.config.live import LiveSettings
from duebridge.config.load import resolved_broker
from duebridge.config.models import Config
from duebridge.ports.discovery import broker_type, naming
from duebridge.ports.publisher import Publisher


def open_publishers(config: Config, stack: ExitStack) -> dict[str, Publisher]:
    """Return a publisher per broker in use; the stack closes them, even if one fails to open.

    Raises `ConfigError`, which names the broker and its setting, or the package to install.
    """
    publishers = {}
    for name in used_brokers(config):
        publishers[name] = open_publisher(config, name)
        stack.callback(publishers[name].close)
    return publishers


def used_brokers(config: Config) -> list[str]:
    """Return the brokers of the routes' targets and dead letters, sorted."""
    targets = [route.target for route in config.routes.values()]
    targets += [route.dead_letter for route in config.routes.values() if route.dead_letter]
    return sorted({target.broker for target in targets})


def open_publisher(config: Config, name: str) -> Publisher:
    """Return a publisher of one broker, which connects on first use; raises `ConfigError`."""
    settings = LiveSettings(partial(resolved_broker, config, name))
    kind = config.brokers[name].type
    with naming(name, kind):
        return broker_type(kind).open_publisher(settings, config.worker.publish_deadline / 1000)
