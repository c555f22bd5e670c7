"""The client of a broker publishing alone: what `duebridge bench` compares the bridge with."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

DEADLINE_S = 120.0  # for all of `publish_all`

# As many and as long as those that the bridge puts on a delivery: the wire is the same.
HEADERS = (
    ("x-message-id", "q3Vb1mJc0m2hX8vT5yZk4w"),
    ("x-route", "r"),
    ("x-attempt", "1"),
    ("x-due-at", "1767225600000"),
    ("x-scheduled-at", "1767225600000"),
)


class BaselineClient(Protocol):
    """A client and a scratch target of its own, which it makes when opened.

    Every message carries `HEADERS`.
    """

    @property
    def target(self) -> Mapping[str, str]:
        """The target as a route names it, without the broker."""
        ...

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
