"""A broker in memory: a test double for the worker's own tests and for users' tests."""

from collections.abc import Mapping

from bridge.errors import ConfigError
from connectors.memory.publisher import MemoryPublisher, Script

__all__ = ["MemoryPublisher", "Script", "open_publisher"]


def open_publisher(settings: Mapping[str, object], publish_deadline_s: float) -> MemoryPublisher:
    """Return a publisher for a broker of `type: memory`.

    With a `name` among the settings it is `MemoryPublisher.named(name)`, the same one for the whole
    process, which is how a test gets hold of what a worker has opened; without, a new one.

    Raises `ConfigError` for any other setting.
    """
    unknown = sorted(settings.keys() - {"type", "name"})
    if unknown:
        raise ConfigError(f"{unknown[0]}: unknown key; a memory broker knows type and name")
    name = settings.get("name")
    publisher = MemoryPublisher() if name is None else MemoryPublisher.named(str(name))
    publisher.reopen(publish_deadline_s)
    return publisher
