"""The port of the baseline: the broker's client publishing alone, without the bridge.

A connector offers one by the entry point `duebridge.bare`, named as the broker's `type`: a function
of `settings`, the broker's mapping with every reference resolved, and of the target's `name`.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Protocol

from duebridge.ports.plugins import call_connector

GROUP = "duebridge.bare"
DEADLINE_S = 120.0  # for all of `publish_all`

# As many and as long as the headers of a delivery, so that the wire carries the same.
HEADERS = (
    ("x-message-id", "q3Vb1mJc0m2hX8vT5yZk4w"),
    ("x-route", "r"),
    ("x-attempt", "1"),
    ("x-due-at", "1767225600000"),
    ("x-scheduled-at", "1767225600000"),
)


class BaselineClient(Protocol):
    """A client with a scratch target of its own, which it creates when opened.

    Every message carries `HEADERS`. `target` is what a route's target names beside its broker.
    """

    target: Mapping[str, str]

    def publish_all(self, bodies: Sequence[bytes]) -> None:
        """Publish with the best settings for bulk; return once all are confirmed."""
        ...

    def publish(self, body: bytes, confirmed: Callable[[], None]) -> None:
        """Publish one immediately; call `confirmed`, in any thread, once the broker has it."""
        ...

    def empty(self) -> None:
        """Remove the published messages if they would slow down the next round."""
        ...

    def close(self) -> None:
        """Delete the target and close the connection."""
        ...


def open_baseline(broker: str, settings: Mapping[str, object], name: str) -> BaselineClient:
    """Return the baseline client of a broker, its target named `name`.

    Raises `ConfigError` if the broker's type has none or its package is missing, and
    `BrokerUnavailable`.
    """
    client: BaselineClient = call_connector(GROUP, broker, str(settings["type"]), settings, name)
    return client


def has_baseline(kind: str) -> bool:
    """Whether a type of broker has a baseline client."""
    return any(point.name == kind for point in entry_points(group=GROUP))
