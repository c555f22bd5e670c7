"""A range of due instants, which those who look at envelopes ask for."""

from typing import NamedTuple

from duebridge.store.wire.replies import Entry


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
        is_before_end = self.to_ms is None or due_at_ms <= self.to_ms
        return is_before_end and due_at_ms >= (self.from_ms or 0)


ANY_TIME = DueWindow()
