"""A range of due instants, which those who look at envelopes ask for."""

from typing import NamedTuple

from duebridge.store.wire.replies import Entry

_NEVER_MS = 2**63


class DueWindow(NamedTuple):
    """A range of due instants in epoch ms, both ends included; None leaves an end open."""

    from_ms: int | None = None
    to_ms: int | None = None

    def has(self, entry: Entry) -> bool:
        """Whether an envelope is due within; an unreadable one is in no bounded window."""
        if self == ANY_TIME:
            return True
        return entry.record is not None and self.covers(entry.record.due_at_ms)

    def covers(self, due_at_ms: int) -> bool:
        """Whether a due instant is within."""
        return (self.from_ms or 0) <= due_at_ms <= (_NEVER_MS if self.to_ms is None else self.to_ms)


ANY_TIME = DueWindow()
