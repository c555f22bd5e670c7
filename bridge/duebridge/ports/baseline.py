"""The ports for clients alone, the baselines that `duebridge bench` compares the bridge with."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

DEADLINE_S = 120.0  # for one call of `publish_all`, `fill` or `take`
DELAY_MS = 3_600_000  # of what `fill` publishes

# Same number and length as the bridge's headers on a delivery, so that wire sizes are equal.
HEADERS = (
    ("x-message-id", "q3Vb1mJc0m2hX8vT5yZk4w"),
    ("x-route", "r"),
    ("x-attempt", "1"),
    ("x-due-at", "1767225600000"),
    ("x-scheduled-at", "1767225600000"),
)

# Of what `fill` publishes, beside its delay: as many and as long, and none that an intake reads.
FILL_HEADERS = (
    ("x-request-id", "q3Vb1mJc0m2hX8vT5yZk4w"),
    ("tenant", "r"),
    ("x-version", "1"),
    ("sent-at", "1767225600000"),
    ("x-captured-at", "1767225600000"),
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


class BareConsumer(Protocol):
    """A consumer with a scratch queue or topic, created when opened, that only acks or commits."""

    @property
    def source(self) -> Mapping[str, object]:
        """The queue or topic as an intake's source names it, without the broker."""
        ...

    def fill(self, bodies: Sequence[bytes]) -> None:
        """Publish bodies, each with an id, `x-delay` and `FILL_HEADERS`; return once kept."""
        ...

    def take(self, count: int) -> None:
        """Consume and settle so many, with the best settings for bulk; connects at first."""
        ...

    def close(self) -> None:
        """Delete the queue or topic and close the connections."""
        ...
