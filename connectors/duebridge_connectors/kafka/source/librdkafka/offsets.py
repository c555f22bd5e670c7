"""Judges the offsets that records state: librdkafka reports them unchecked, and a broker takes any.

Taken at its word, a record that states a later offset would move the intake's place past the
records after it, which would count as known. librdkafka tells no bounds of a record's batch. So an
offset at or beyond the end of the log is refused; a false one before it is not recognised
(docs/security.md), but for the log line about the offsets that then fall.

librdkafka goes on fetching after what a record states, and resumes there. So after a refused one
nothing is taken but the next record in order, and its partition is read again from there.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from time import monotonic
from typing import Any

FALLS_S = 10.0  # between two log lines about a partition

log = logging.getLogger(__name__)


class StatedOffsets:
    """Where each owned partition goes on: after the last record that came, in the log's order."""

    def __init__(self, topic: str, end_of: Callable[[int], int]) -> None:
        """`end_of` returns the known end of a partition's log, negative for none."""
        self._topic, self._end_of = topic, end_of
        self._fell_at: dict[int, float] = {}
        self._next: dict[int, int] = {}
        self._ends: dict[int, int] = {}  # the highest that were known
        self._misled: set[int] = set()  # librdkafka's position is not ours
        self._unread: set[int] = set()  # of these, what is not read again yet

    def begin(self, starts: Iterable[Any]) -> None:
        """Begin partitions at offsets, or at the beginning of the log."""
        for start in starts:
            self._next[start.partition] = start.offset
            self._ends.pop(start.partition, None)
            self._forgive(start.partition)

    def after(self, part: int) -> int:
        """Return where a partition goes on; an offset, or that of its beginning."""
        return self._next[part]

    def unread(self) -> Collection[int]:
        """Return the partitions to read again from where they go on; then forget them."""
        found, self._unread = self._unread, set()
        return found

    def overtake(self, part: int) -> None:
        """Note that librdkafka handed out a record that was not taken."""
        self._misled.add(part)

    def resume(self) -> None:
        """Note that librdkafka resumes after what the last records stated, taken or not."""
        self._unread |= self._misled

    def offset_of(self, part: int, stated: int) -> tuple[int, str] | None:
        """Return a record's offset, and what is wrong with the one that it states.

        None: it does not come next, after a refused one. A refused record gets the offset that was
        expected, which no record after it has.
        """
        expected = max(self._next.get(part, 0), 0)
        if part in self._unread and stated != expected:
            return None
        if stated >= self._ends.get(part, 0) and 0 <= (end := self._end(part)) <= stated:
            self._misled.add(part)
            self._unread.add(part)
            self._next[part] = expected + 1
            return expected, f"offset: expected one before the log's end, {end}; got {stated}"
        if stated < expected:
            self._note_fall(part, expected, stated)
        self._forgive(part)
        self._next[part] = stated + 1
        return stated, ""

    def _forgive(self, part: int) -> None:
        self._misled.discard(part)
        self._unread.discard(part)

    def _end(self, part: int) -> int:
        self._ends[part] = end = max(self._end_of(part), self._ends.get(part, -1))
        return end

    def _note_fall(self, part: int, expected: int, stated: int) -> None:
        if monotonic() - self._fell_at.get(part, -FALLS_S) < FALLS_S:
            return
        self._fell_at[part] = monotonic()
        log.warning(
            "topic %s, partition %d: offset %d came where at least %d was expected: the log was "
            "cut, or a record stated a false offset, and those up to %d count as known "
            "(docs/security.md)",
            self._topic,
            part,
            stated,
            expected,
            expected - 1,
        )
