"""The brokers' publishers, found by entry point: the core knows no connector by name."""

from contextlib import ExitStack
from importlib.metadata import EntryPoint, entry_points, metadata

from bridge.config import Config
from bridge.config_file import resolved_broker
from bridge.errors import ConfigError
from bridge.publisher import Publisher

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
    kind = str(settings["type"])
    deadline_s = config.worker.publish_deadline / 1000
    try:
        publisher: Publisher = _entry_point(name, kind).load()(settings, deadline_s)
    except ImportError as error:
        raise ConfigError(f"brokers.{name}: {_remedy(kind, error)}") from error
    return publisher


def _entry_point(name: str, kind: str) -> EntryPoint:
    found = {each.name: each for each in entry_points(group=GROUP)}
    if kind in found:
        return found[kind]
    known = ", ".join(sorted(found)) or "none"
    raise ConfigError(f"brokers.{name}.type: expected one that is installed ({known}); got {kind}")


def _remedy(kind: str, error: ImportError) -> str:
    missing = f"type {kind} needs the Python package {error.name}, which is not installed"
    if kind in (metadata("duebridge").get_all("Provides-Extra") or ()):
        return f"{missing}; type: pip install 'duebridge[{kind}]'"
    return missing
