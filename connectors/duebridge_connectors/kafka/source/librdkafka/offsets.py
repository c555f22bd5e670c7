"""Judges the offsets that records state: librdkafka reports them unchecked, and a broker takes any.

Taken at its word, a record that states a later offset would move the intake's place past the
records after it, which would count as known. librdkafka tells no bounds of a record's batch. So an
offset at or beyond the end of the log is refused; a false one before it is not recognised
(docs/security.md), but for the log line about the offsets that then fall.

librdkafka goes on fetching after what a record states, and resumes after the highest offset that
one stated since the last seek. So after a refused one nothing is taken but the next record in
order, and its partition is read again from there. The refused one may come once more then: where
offsets have a gap before it, or with the rest of its batch.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from time import monotonic

FALLS_S = 10.0  # between two log lines about a partition
MOST_REFUSED = 10_000  # that are known again
BEGINNING = -2  # of the log, as librdkafka writes it

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
        self._strayed: set[int] = set()  # of these, those that strayed since they were read again
        self._unread: set[int] = set()  # of these, those to read again
        self._refused: dict[tuple[int, int], None] = {}  # partition and hash
        self._repeated: set[int] = set()  # a refused record that came again was the last so far

    def begin(self, starts: Iterable[tuple[int, int]]) -> None:
        """Begin partitions at offsets, or at `BEGINNING`."""
        for part, offset in starts:
            self._next[part] = offset
            self._ends.pop(part, None)
            for marks in (self._misled, self._strayed, self._unread, self._repeated):
                marks.discard(part)
            self._refused = {each: None for each in self._refused if each[0] != part}

    def after(self, part: int) -> int:
        """Return where a partition goes on; an offset, or `BEGINNING`."""
        return self._next.get(part, BEGINNING)

    def is_misled(self, part: int) -> bool:
        """Whether librdkafka's position in a partition may be a false one."""
        return part in self._misled

    def unread(self, *, was_cut: bool = True) -> Collection[int]:
        """Return the partitions to read again from where they go on; then forget them.

        Where nothing follows a refused record that came again, offsets have a gap before it, and
        the next offset is tried; unless what was fetched `was_cut`.
        """
        for part in self._repeated:
            self._unread.add(part)
            self._next[part] += not was_cut
        self._repeated.clear()
        found, self._unread = self._unread, set()
        self._strayed -= found
        return found

    def overtake(self, part: int) -> None:
        """Note that librdkafka handed out a record that was not taken."""
        self._misled.add(part)
        self._strayed.add(part)

    def resume(self) -> None:
        """Note that librdkafka resumes after what the last records stated, taken or not."""
        self._unread |= self._misled

    def offset_of(self, part: int, stated: int, *content: object) -> tuple[int, str] | None:
        """Return a record's offset, and what is wrong with the one that it states.

        None: it does not come next, after a refused one, or was refused before. A refused record
        gets the offset that was expected, which no record after it has.
        """
        expected = max(self._next.get(part, 0), 0)
        if part in self._unread and stated != expected:
            return None
        if self._refused and (part, hash((stated, *content))) in self._refused:
            self.overtake(part)
            self._repeated.add(part)
            return None
        self._repeated.discard(part)
        if stated >= self._ends.get(part, 0) and 0 <= (end := self._end(part)) <= stated:
            self._refuse(part, hash((stated, *content)))
            self._next[part] = expected + 1
            return expected, f"offset: expected one before the log's end, {end}; got {stated}"
        if stated < expected:
            self._note_fall(part, expected, stated)
        if part not in self._strayed:
            self._misled.discard(part)
        self._next[part] = stated + 1
        return stated, ""

    def _refuse(self, part: int, content: int) -> None:
        self.overtake(part)
        self._unread.add(part)
        if len(self._refused) >= MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[part, content] = None

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
