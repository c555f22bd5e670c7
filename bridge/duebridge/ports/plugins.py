"""A connector's functions, found by entry point: the core knows no connector by name."""

from importlib.metadata import EntryPoint, entry_points, metadata
from typing import Any

from duebridge.errors import ConfigError


class ExtraMissing(ConfigError):
    """A connector's client is not installed: what is missing, and what mends that."""

    def __init__(self, broker: str, missing: str, remedy: str) -> None:
        self.missing, self.remedy = missing, remedy
        super().__init__(f"brokers.{broker}: {missing}; {remedy}")


def call_connector(group: str, broker: str, kind: str, *arguments: object) -> Any:
    """Call what the connector of a broker's type has in this group of entry points.

    Raises `ConfigError` where there is none, and `ExtraMissing`, with the line to type.
    """
    try:
        return _entry_point(group, broker, kind).load()(*arguments)
    except ImportError as error:
        missing = f"type {kind} needs the Python package {error.name}, which is not installed"
        raise ExtraMissing(broker, missing, _remedy(kind, error)) from error


def _entry_point(group: str, broker: str, kind: str) -> EntryPoint:
    found = {each.name: each for each in entry_points(group=group)}
    if kind in found:
        return found[kind]
    known = ", ".join(sorted(found)) or "none"
    expected = f"expected one that is installed ({known})"
    raise ConfigError(f"brokers.{broker}.type: {expected}; got {kind}")


def _remedy(kind: str, error: ImportError) -> str:
    extras = metadata("duebridge").get_all("Provides-Extra") or ()
    package = f"'duebridge[{kind}]'" if kind in extras else error.name
    return f"type: pip install {package}"
