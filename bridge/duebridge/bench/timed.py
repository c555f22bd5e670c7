"""A publisher that notes when each delivery was handed over, and when it was confirmed."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from duebridge.ports.publisher import Delivery, Outcome, Publisher

DUE_AT = "x-due-at"


class Passage(NamedTuple):
    """One batch, by this machine's clock; confirmed when the slowest of it was."""

    handed_ms: float
    confirmed_ms: float
    due_ms: list[int]


class TimedPublisher:
    """Wraps a publisher; implements `duebridge.ports.publisher.Publisher`."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._passages: list[Passage] = []

    def publish(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Publish, and note the time before and after."""
        handed_at = time.time()
        outcomes = self._publisher.publish(batch)
        confirmed_at = time.time()
        due_ms = [int(str(dict(each.headers)[DUE_AT])) for each in batch]
        self._passages.append(Passage(handed_at * 1000, confirmed_at * 1000, due_ms))
        return outcomes

    def close(self) -> None:
        """Close the publisher."""
        self._publisher.close()

    def late_ms(self, offset_ms: float, from_ms: int) -> list[float]:
        """Return due to confirm of all that was due from then on; `offset_ms` is the store's."""
        return [
            passage.confirmed_ms + offset_ms - due_ms
            for passage in self._passages
            for due_ms in passage.due_ms
            if due_ms >= from_ms
        ]

    def early(self, offset_ms: float) -> int:
        """Return how many were handed over before they were due."""
        return sum(
            passage.handed_ms + offset_ms < due_ms
            for passage in self._passages
            for due_ms in passage.due_ms
        )
