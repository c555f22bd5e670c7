"""The port of a client publishing alone: what the bridge with that client is compared with.

A connector offers one by the entry point `duebridge.bare`, named as the broker's `type`:
`open_bare(settings, name)`, where `settings` is the broker's mapping, every reference resolved.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Protocol

from duebridge.ports.plugins import call_connector

GROUP = "duebridge.bare"
DEADLINE_S = 120.0  # for all of `publish_all`

# As many and as long as those that the bridge puts on a delivery: the wire is the same.
HEADERS = (
    ("x-message-id", "q3Vb1mJc0m2hX8vT5yZk4w"),
    ("x-route", "r"),
    ("x-attempt", "1"),
    ("x-due-at", "1767225600000"),
    ("x-scheduled-at", "1767225600000"),
)


class BareClient(Protocol):
    """A client and a scratch target of its own, which it makes when opened.

    Every message carries `HEADERS`. `target` is the target as a route names it, without the broker.
    """

    target: Mapping[str, str]

    def publish_all(self, bodies: Sequence[bytes]) -> None:
        """Publish with the settings that are best in bulk; return once each is confirmed."""
        ...

    def publish(self, body: bytes, confirmed: Callable[[], None]) -> None:
        """Publish one at once; call `confirmed`, in any thread, when the broker has it."""
        ...

    def empty(self) -> None:
        """Remove what was published, where what lies there would slow the next round down."""
        ...

    def close(self) -> None:
        """Delete the target and give up the connection."""
        ...


def open_bare(broker: str, settings: Mapping[str, object], name: str) -> BareClient:
    """Return the bare client for a broker and its settings, its target named `name`.

    Raises `ConfigError` where the broker's type has none or its package is missing, and
    `BrokerUnavailable`.
    """
    client: BareClient = call_connector(GROUP, broker, str(settings["type"]), settings, name)
    return client


def has_bare(kind: str) -> bool:
    """Whether there is a bare client for a type of broker."""
    return any(each.name == kind for each in entry_points(group=GROUP))
