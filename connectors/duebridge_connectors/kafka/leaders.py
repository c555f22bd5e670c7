"""Keeps records from partitions without a leader, where each would wait for the whole deadline.

A topic's leaders are looked up anew once a second while it lacks one, and after a missing answer.
"""

import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from kafka.partitioner.default import murmur2

from duebridge.ports.publisher import Delivery, Outcome, Verdict

LOOK_EVERY_S = 1.0


class _Vacancy(NamedTuple):
    """The partitions of a topic that have no leader."""

    partitions: int
    leaderless: frozenset[int]

    @property
    def verdict(self) -> Verdict:
        is_whole = len(self.leaderless) == self.partitions
        return Verdict.TARGET_UNAVAILABLE if is_whole else Verdict.PART_UNAVAILABLE


class Leaders:
    """The leaders of one client's topics, as of the latest lookup of each. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._vacancies: dict[str, _Vacancy] = {}
        self._look_at: dict[str, float] = {}

    def note(self, topic: str, leaders: Collection[tuple[int, int]]) -> None:
        """Note the partitions of a topic with the leader of each, -1 for none."""
        leaderless = frozenset(part for part, leader in leaders if leader < 0)
        if leaderless:
            self._vacancies[topic] = _Vacancy(len(leaders), leaderless)
            self._look_at[topic] = self._monotonic() + LOOK_EVERY_S
        else:
            self._vacancies.pop(topic, None)
            self._look_at.pop(topic, None)

    def doubt(self, topics: Iterable[str]) -> None:
        """Have topics looked up before the next records to them: an answer is missing."""
        for topic in topics:
            self._look_at.setdefault(topic, self._monotonic())

    def begin_looks(self, topics: Iterable[str]) -> list[str]:
        """Return which of the topics the caller is to look up; nobody else is for a second."""
        if not self._look_at:
            return []
        now = self._monotonic()
        due = [each for each in topics if self._look_at.get(each, now + 1) <= now]
        self._look_at.update(dict.fromkeys(due, now + LOOK_EVERY_S))
        return due

    def has_vacancy(self, topics: Iterable[str]) -> bool:
        """Return whether any of the topics lacks a leader."""
        return bool(self._vacancies) and any(each in self._vacancies for each in topics)

    def refusal(self, delivery: Delivery) -> Outcome | None:
        """Return the outcome of a delivery whose key's partition has no leader, else None.

        Without a key it goes to a partition that has one, if there is any.
        """
        vacancy = self._vacancies.get(delivery.target.topic or "")
        if vacancy is None or not (delivery.key or vacancy.verdict is Verdict.TARGET_UNAVAILABLE):
            return None
        part = _partition(delivery.key, vacancy.partitions) if delivery.key else -1
        if delivery.key and part not in vacancy.leaderless:
            return None
        text = f"partition {part} has no leader" if part >= 0 else "no partition has a leader"
        return Outcome(vacancy.verdict, error_class="NoLeader", error_message=text, part=part)


def _partition(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as both clients choose it."""
    hashed: int = murmur2(key)
    return (hashed & 0x7FFFFFFF) % partitions
