"""The port for direct publishing, the baseline that `duebridge bench` compares the bridge with."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

DEADLINE_S = 120.0  # for one call of `publish_all`

# Same number and length as the bridge's headers on a delivery, so that wire sizes are equal.
HEADERS = (
    ("x-message-id", "q3Vb1mJc0m2hX8vT5yZk4w"),
    ("x-route", "r"),
    ("x-attempt", "1"),
    ("x-due-at", "1767225600000"),
    ("x-scheduled-at", "1767225600000"),
)


class BaselineClient(Protocol):
    """A broker client with a scratch target, which it creates when opened.

    Every message carries `HEADERS`.
    """

    @property
    def target(self) -> Mapping[str, str]:
        """The target as a route names it, without the broker."""
        ...

    def publish_all(self, bodies: Sequence[bytes]) -> None:
        """Publish with the best settings for bulk; return once every message is confirmed."""
        ...

    def publish(self, body: bytes, confirmed: Callable[[], None]) -> None:
        """Publish one message immediately; call `confirmed`, from any thread, on its confirm."""
        ...

    def empty(self) -> None:
        """Purge published messages if they would slow down the next round."""
        ...

    def close(self) -> None:
        """Delete the target and close the connection."""
        ...
