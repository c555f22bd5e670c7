"""Reads the journals of all shards as events of envelopes, merged by time."""

from collections import deque
from collections.abc import Iterator
from heapq import merge

import msgspec

from duebridge.ports.publisher import reason_word
from duebridge.store.journal import Journal, JournalEntry
from duebridge.store.keys import Shard
from duebridge.store.numbering import Numbering
from duebridge.store.purges import PurgeLog

GAP = "gap"
PURGED = "purged"


class EnvelopeEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One transition of one envelope; instants in epoch ms.

    `kind` is accepted, replaced, delivered, retried, dead, expired, shunted, cancelled,
    rescheduled, replayed or dropped. `retried` and `dead` have the class of the error, the
    beginning of its message, and whether it `counted` as a failure of the envelope, None if
    unknown; `retried` has the latest instant of the next try: a target that is well again ends the
    wait. `by` is the person whose command it was, if one. `purged` is of a whole route, with the
    number of its `envelopes`, waiting and dead.
    A `gap` has no id: `lost_entries` entries of the journal, each of up to 1,000 envelopes, were
    cut by its cap before they were read, or were read and then lost by the store in a failover.
    """

    kind: str
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
            self._after = purge.id
            if purge.at_ms >= self._since_ms and self._route in (None, purge.route):
                yield EnvelopeEvent(
                    PURGED,
                    purge.at_ms,
                    purge.route,
                    shard=0,
                    envelopes=purge.envelopes,
                    by=purge.actor,
                )


class EventReader:
    """Reads journals from its position to their end. All methods raise `StoreError`."""

    def __init__(self, journals: list[Journal], purges: Purges | None = None) -> None:
        """Start before the first entry that each journal ever had; what was cut is a gap."""
        self._journals = journals
        self._purges = purges
        self._read = [0] * len(journals)
        self._ahead = [0] * len(journals)  # what was read and is not there any more

    def go_to_instant(self, at_ms: int) -> None:
        """Seek to an instant; entries since then that the cap has cut are a gap."""
        self._read = [journal.before_instant(at_ms) for journal in self._journals]
        if self._purges is not None:
            self._purges.go_to_instant(at_ms)

    def go_to_newest(self, limit: int) -> None:
        """Seek so that at least the newest `limit` events are ahead."""
        self._read = [journal.before_newest(limit) for journal in self._journals]

    def new(self) -> Iterator[EnvelopeEvent]:
        """Yield the unread events in the order of time, and move behind them.

        Memory holds one page of each journal.
        """
        return merge(
            *[self._of_shard(place) for place in range(len(self._journals))],
            *([] if self._purges is None else [self._purges.new()]),
            key=lambda event: event.at_ms,
        )

    def newest(self, limit: int) -> list[EnvelopeEvent]:
        """Return the newest `limit` of the unread events, and move behind them."""
        return list(deque(self.new(), limit))

    def _of_shard(self, place: int) -> Iterator[EnvelopeEvent]:
        journal = self._journals[place]
        (end, numbering), at_ms = journal.end(), 0
        self._ahead[place] = max(self._ahead[place], self._read[place])
        self._read[place] = min(self._read[place], end)  # a failover may have lost the newest
        for entry in journal.read(self._read[place], end):
            at_ms = entry.at_ms
            yield from self._gap(place, numbering, entry.before, entry.sequence, at_ms)
            self._read[place] = entry.sequence
            yield from events_of(journal.shard, entry)
        yield from self._gap(place, numbering, end, end, at_ms)
        self._read[place] = end

    def _gap(
        self, place: int, numbering: Numbering, before: int, sequence: int, at_ms: int
    ) -> Iterator[EnvelopeEvent]:
        """Yield a gap if entries up to `before` are missing, or were lost after they were read."""
        lost = numbering.count(self._read[place], before)
        lost += numbering.lost(self._ahead[place], sequence)
        if sequence > self._ahead[place]:
            self._ahead[place] = 0
        if lost:
            shard = self._journals[place].shard
            yield EnvelopeEvent(GAP, at_ms, shard.route, shard.number, lost_entries=lost)


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
