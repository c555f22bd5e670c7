"""Reads the journals of all shards as events of envelopes, merged by time."""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from typing import Final, Literal, TypeAlias

import msgspec

from duebridge.errors import StoreUnavailable
from duebridge.ports.publisher import reason_word
from duebridge.store.journal import EventKind, Journal, JournalEntry
from duebridge.store.keys import Shard
from duebridge.store.numbering import Numbering
from duebridge.store.purges import PurgeLog

GAP: Final = "gap"
PURGED: Final = "purged"
EnvelopeEventKind: TypeAlias = EventKind | Literal["gap", "purged"]
LeaveOut: TypeAlias = Callable[[StoreUnavailable, Shard | None], None]


def leave_nothing_out(error: StoreUnavailable, _: Shard | None) -> None:
    """Raise the error of what is away."""
    raise error


class EnvelopeEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One transition of one envelope; instants in epoch ms.

    `kind` is any of `EventKind` but `renewed`, which is of no envelope. `retried` and `dead` have
    the class of the error, the beginning of its message, and whether it `counted` as a failure of
    the envelope, None if unknown; `retried` has the latest instant of the next try: a target that
    is well again ends the wait. `by` is the person whose command it was, if one. `purged` is of a
    whole route, with the number of its `envelopes`, waiting and dead.
    A `gap` has no id: `lost_entries` entries of the journal, each of up to 1,000 envelopes, were
    cut by its cap before they were read, or were read and then lost by the store in a failover.
    """

    kind: EnvelopeEventKind
    at_ms: int
    route: str
    shard: int
    id: str = ""
    due_at_ms: int = 0
    attempt: int | None = None
    reason: str = ""
    error_class: str = ""
    next_at_ms: int | None = None
    lost_entries: int = 0
    envelopes: int | None = None
    by: str = ""
    counted: bool | None = None
    error_message: str = ""


class Purges:
    """Reads the purges of a route, or of any, as events."""

    def __init__(self, log: PurgeLog, route: str | None = None) -> None:
        """Start before the first that is kept."""
        self._log = log
        self._route = route
        self._since_ms = 0
        self._after = ""

    def go_to_instant(self, at_ms: int) -> None:
        """Seek to an instant."""
        self._since_ms = at_ms

    def new(self) -> Iterator[EnvelopeEvent]:
        """Yield the unread ones, and move behind them."""
        for purge in self._log.after(self._after):
            if purge.at_ms >= self._since_ms and self._route in (None, purge.route):
                yield EnvelopeEvent(
                    PURGED,
                    purge.at_ms,
                    purge.route,
                    shard=0,
                    envelopes=purge.envelopes,
                    by=purge.actor,
                )
            self._after = purge.id


class EventReader:
    """Reads journals from its position to their end. All methods raise `StoreError`."""

    def __init__(self, journals: list[Journal], purges: Purges | None = None) -> None:
        """Start before the first entry that each journal ever had; what was cut is a gap."""
        self._shards = [_ShardReader(journal) for journal in journals]
        self._purges = purges

    def add(self, journals: list[Journal]) -> None:
        """Read further journals, from their beginning; one that is read already stays as it is."""
        known = {each.journal.shard for each in self._shards}
        self._shards += [_ShardReader(each) for each in journals if each.shard not in known]

    def go_to_instant(self, at_ms: int) -> None:
        """Seek to an instant; entries since then that the cap has cut are a gap."""
        for each in self._shards:
            each.seek(lambda journal: journal.before_instant(at_ms))
        if self._purges is not None:
            self._purges.go_to_instant(at_ms)

    def go_to_newest(self, limit: int) -> None:
        """Seek so that at least the newest `limit` events are ahead."""
        for each in self._shards:
            each.seek(lambda journal: journal.before_newest(limit))

    def begin_left_out_at(self, at_ms: int) -> None:
        """Seek to an instant in the shards that were away since the last seek."""
        for each in self._shards:
            if each.is_sought:
                each.seek(lambda journal: journal.before_instant(at_ms))

    @property
    def shards(self) -> int:
        """The number of shards whose journals are read."""
        return len(self._shards)

    def new(self, leave_out: LeaveOut = leave_nothing_out) -> Iterator[EnvelopeEvent]:
        """Yield the unread events in the order of time, and move behind them.

        An event counts as read once the next one is asked for: after an error the next call goes on
        behind the last event that was yielded. Memory holds one page of each journal.
        A shard (None: the purges) that is away is left out, with what it has not yielded, if
        `leave_out` takes its error and does not raise.
        """
        found = [
            _left_out_if_away(each.new(), each.journal.shard, leave_out) for each in self._shards
        ]
        if self._purges is not None:
            found.append(_left_out_if_away(self._purges.new(), None, leave_out))
        return merge(*found, key=lambda event: event.at_ms)

    def newest(self, limit: int, leave_out: LeaveOut = leave_nothing_out) -> list[EnvelopeEvent]:
        """Return the newest `limit` of the unread events, and move behind them."""
        return list(deque(self.new(leave_out), limit))


def _left_out_if_away(
    events: Iterator[EnvelopeEvent], shard: Shard | None, leave_out: LeaveOut
) -> Iterator[EnvelopeEvent]:
    try:
        yield from events
    except StoreUnavailable as error:
        leave_out(error, shard)


class _ShardReader:
    """Reads the journal of one shard; its position moves when the event after it is asked for.

    `heapq.merge` holds an event of each shard that nobody has seen yet: it must not count as read.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._read = 0
        self._begun, self._shown = 0, 0  # an entry of which so many events were read
        self._ahead = 0  # what was read and is not there any more
        self._epoch = ""
        self._seek: Callable[[Journal], int] | None = None

    def seek(self, find: Callable[[Journal], int]) -> None:
        """Seek behind the entry that `find` returns, once the journal is read."""
        self._seek = find

    @property
    def is_sought(self) -> bool:
        """Whether a seek waits for the journal to be read."""
        return self._seek is not None

    def go_to(self, read: int) -> None:
        """Seek behind an entry."""
        self._read = read
        self._begun = self._ahead = 0

    def new(self) -> Iterator[EnvelopeEvent]:
        """Yield the unread events, and move behind each."""
        if self._seek is not None:
            self.go_to(self._seek(self.journal))
            self._seek = None
        (end, numbering, epoch), at_ms = self.journal.end(), 0
        self._enter_life(epoch)
        self._ahead = max(self._ahead, self._read, self._begun)
        self._read = min(self._read, end)  # a failover may have lost the newest
        for entry in self.journal.read(self._read, end):
            at_ms = entry.at_ms
            yield from self._gap(numbering, entry.before, entry.sequence, at_ms)
            yield from self._unread(entry)
            self._read = entry.sequence
        yield from self._gap(numbering, end, end, at_ms)
        self._read = end

    def _enter_life(self, epoch: str) -> None:
        """Begin with another life of the route; that a purge ended the one before is an event."""
        if epoch and epoch != self._epoch:
            if self._epoch:
                self.go_to(0)
            self._epoch = epoch

    def _unread(self, entry: JournalEntry) -> Iterator[EnvelopeEvent]:
        if self._begun != entry.sequence:
            self._begun, self._shown = entry.sequence, 0
        for event in islice(events_of(self.journal.shard, entry), self._shown, None):
            yield event
            self._shown += 1

    def _gap(
        self, numbering: Numbering, before: int, sequence: int, at_ms: int
    ) -> Iterator[EnvelopeEvent]:
        """Yield a gap if entries up to `before` are missing, or were lost after they were read."""
        lost = numbering.count(self._read, before) + numbering.lost(self._ahead, sequence)
        if lost:
            shard = self.journal.shard
            yield EnvelopeEvent(GAP, at_ms, shard.route, shard.number, lost_entries=lost)
        self._read = max(self._read, before)
        if sequence > self._ahead:
            self._ahead = 0


def events_of(shard: Shard, entry: JournalEntry) -> Iterator[EnvelopeEvent]:
    """Yield the events of an entry, one for each item."""
    for envelope_id, note in entry.items:
        yield EnvelopeEvent(
            entry.kind,
            entry.at_ms,
            shard.route,
            shard.number,
            envelope_id,
            note.due_at_ms,
            note.attempt,
            "" if note.reason is None else reason_word(note.reason),
            note.error_class,
            note.next_at_ms,
            by=entry.actor,
            counted=note.counted,
            error_message=note.error_message,
        )
