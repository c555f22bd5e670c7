"""Topic permissions, which RabbitMQ asks for each routing key of a topic exchange."""

import time
from collections.abc import Callable

TOPICS_ASKED_S = 60.0  # after the last refusal; a minute later permitted keys are quick again
MOST_TOPICS = 10_000


class TopicPermissions:
    """Which routing keys a topic permission may still refuse; none while it has refused none."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._asked_until: float | None = None
        self._accepted: set[str] = set()

    def note_refusal(self, routing_key: str | None) -> None:
        """Have each routing key proved by a message of its own for a while.

        `routing_key` was refused, None if unknown; once accepted, its permission was withdrawn.
        """
        if self._asked_until is None:
            self._accepted.clear()
        self._accepted -= {routing_key}
        self._asked_until = self._monotonic() + TOPICS_ASKED_S

    def note_accepted(self, routing_key: str) -> None:
        """Note that a message of the key was confirmed."""
        if self._asked_until is not None and len(self._accepted) < MOST_TOPICS:
            self._accepted.add(routing_key)

    def may_refuse(self, routing_key: str) -> bool:
        """Whether a message of the key must go alone."""
        if self._asked_until is None or routing_key in self._accepted:
            return False
        if self._monotonic() >= self._asked_until:
            self._asked_until = None
        return self._asked_until is not None
