"""The numbers of a journal: dense, but for the jump of each renewal.

A renewal finds a last number and goes on beyond every number that was ever given out, since the
server may have lost the newest entries. A reader that was beyond the number found has read entries
that are lost: it has a gap. All others have none.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_JUMP = re.compile(rb"(\d+):(\d+)")


class Jump(NamedTuple):
    """A renewal: the last number that it found, and the number of its own entry."""

    found: int
    first: int


class EntrySpan(NamedTuple):
    """The entries `after` + 1 to `until`, without a jump in between."""

    after: int
    until: int

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.until - self.after


class Numbering:
    """The jumps of a journal that matter to its readers, in order."""

    def __init__(self, jumps: Iterable[Jump] = ()) -> None:
        self.jumps: Sequence[Jump] = tuple(jumps)

    @classmethod
    def of(cls, text: bytes) -> "Numbering":
        """Return the newest jumps as the store has them: lua/renew.lua."""
        return cls(Jump(int(found[1]), int(found[2])) for found in _JUMP.finditer(text))

    def lost(self, read: int, until: int) -> int:
        """Count the entries up to `read` that a reader has and the store has lost since."""
        found = next((jump.found for jump in self._between(read, until)), read)
        return max(0, read - found)

    def kept(self, until: int) -> int:
        """Return the newest number up to `until` that the store has not lost since."""
        found = (jump.found for jump in self.jumps if jump.found < until < jump.first)
        return min(found, default=until)

    def up_to(self, until: int) -> "Numbering":
        """Return the jumps up to a number."""
        return Numbering(self._between(0, until))

    def spans(self, after: int, until: int) -> list[EntrySpan]:
        """Return the numbers from `after` + 1 to `until`, without those that were skipped."""
        spans = []
        for jump in self._between(after, until):
            spans.append(EntrySpan(after, jump.found))
            after = jump.first - 1
        spans.append(EntrySpan(after, until))
        return [span for span in spans if span.size > 0]

    def count(self, after: int, until: int) -> int:
        """Count the entries that have a number from `after` + 1 to `until`."""
        return sum(span.size for span in self.spans(after, until))

    def advanced(self, after: int, until: int, count: int) -> int:
        """Return the number of the `count`th entry after `after`, at most `until`."""
        for span in self.spans(after, until):
            if count <= span.size:
                return span.after + count if count else after
            count -= span.size
        return until

    def _between(self, after: int, until: int) -> list[Jump]:
        return [jump for jump in self.jumps if after < jump.first <= until]
