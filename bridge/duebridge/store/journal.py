"""Reads the journal of a shard: the transitions of its envelopes, in order.

lua/shared/journal.lua has the layout. A reader sees a gap where entries are missing that it had not
read yet, or had (`store.numbering`).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from duebridge.errors import StoreError
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.numbering import EntrySpan, Numbering
from duebridge.store.server.connection import Connection
from duebridge.store.server.errors import translated_errors
from duebridge.store.wire.journal_entry import (
    EntryColumns,
    EntryHead,
    EventKind,
    Fields,
    JournalEntry,
    Note,
    read_entry,
    read_entry_columns,
    read_head,
    sequence_of,
)

__all__ = ["PAGE", "EventKind", "Journal", "JournalEnd", "JournalEntry", "Note", "read_entry"]

PAGE = 16  # entries a read: at most some 4 MiB, since one has up to 1,000 items


class JournalEnd(NamedTuple):
    """The number of the newest entry ever written, 0 for none, and the jumps up to it.

    `epoch`: the life of the route that has these numbers, "" for none. Another one begins again.
    """

    last: int
    numbering: Numbering
    epoch: str


class Journal:
    """The journal of a shard, read a page at a time. All methods raise `StoreError`."""

    def __init__(self, connection: Connection, shard: Shard) -> None:
        self.shard = shard
        self._connection = connection
        self._client: Any = connection.client
        self._key = shard.key("journal")
        self._meta = shard.key("meta")

    def last(self) -> int:
        """Return the number of the newest entry ever written; 0 for none."""
        return self.end().last

    def end(self) -> JournalEnd:
        """Return the newest number, the jumps up to it, and whose they are."""
        with translated_errors():
            found = self._client.hmget(self._meta, "journal_sequence", "journal_jumps", "epoch")
        last, jumps, epoch = found[0] or b"0", found[1] or b"", found[2] or b""
        if not last.isdigit():
            raise StoreError(f"{self._meta}: journal_sequence: expected a number; got {last!r}")
        return JournalEnd(int(last), Numbering.of(jumps), epoch.decode())

    def awaits_renewal(self) -> bool:
        """Whether the server may have lost entries, and no call has renewed the shard since."""
        with translated_errors():
            master: bytes | None = self._client.hget(self._meta, "master")
            info = self._client.execute_command("INFO", "replication", **self._node())
        return master is not None and master.decode() != str(info["master_replid"])

    def _node(self) -> dict[str, Any]:
        find = getattr(self._client, "get_node_from_key", None)  # of a Cluster
        return {"target_nodes": find(self._meta)} if find else {}

    def first(self) -> int:
        """Return the number of the oldest entry still there, else that of the next entry."""
        return self._before_first() + 1

    def began_ms(self) -> int | None:
        """Return the instant of the first entry ever written; None if there is none, or no more."""
        first = self._first_from(0)
        return first.at_ms if first is not None and first.before == 0 else None

    def note_kept(self, until: int) -> None:
        """Note that an outside table has the entries up to a number; the note never goes back."""
        DelayStore(self._connection, self.shard).note("journal_kept", until, "rise")

    def read(self, after: int, until: int) -> Iterator[JournalEntry]:
        """Yield the entries after `after` up to `until`; entries that the cap cut are missing."""
        for stored in self.stored(after, until):
            yield read_entry(*stored)

    def columns(self, after: int, until: int) -> Iterator[EntryColumns]:
        """Yield the entries that `read` does by column, without what failed."""
        for stored in self.stored(after, until):
            yield read_entry_columns(*stored)

    def stored(self, after: int, until: int) -> Iterator[tuple[bytes, Fields]]:
        """Yield the entries that `read` does, as the stream has them."""
        while after < until:
            with translated_errors():
                page = self._client.xrange(self._key, after + 1, until, count=PAGE)
            yield from page
            if len(page) < PAGE:
                return
            after = sequence_of(page[-1][0])

    def about(
        self,
        id: str,  # noqa: A002 - the public name of the field
        after: int,
        until: int,
    ) -> Iterator[tuple[EntryHead, JournalEntry | None]]:
        """Yield the head of each entry that `read` yields; with its items about an id, if any."""
        wanted = id.encode(errors="surrogateescape")
        for stored in self.stored(after, until):
            head, entry = read_head(*stored), None
            if wanted in stored[1].get(b"i", b""):  # else it need not be read whole
                whole = read_entry(*stored)
                entry = whole._replace(items=[item for item in whole.items if item[0] == id])
            yield head, entry if entry and entry.items else None

    def newest(self) -> Iterator[EntryHead]:
        """Yield the heads of the entries, newest first."""
        before = "+"
        while True:
            with translated_errors():
                page = self._client.xrevrange(self._key, before, "-", count=PAGE)
            yield from (read_head(*stored) for stored in page)
            if len(page) < PAGE:
                return
            before = f"({sequence_of(page[-1][0])}-0"

    def before_newest(self, items: int) -> int:
        """Return the number after which the newest `items` items lie, and maybe some more."""
        if items <= 0:
            return self.last()
        found = 0
        for head in self.newest():
            found += head.items
            if found >= items:
                return head.before
        return self._before_first()

    def before_instant(self, at_ms: int) -> int:
        """Return the number after which all entries since an instant lie.

        It is 0 where the cap may have cut some of them: a reader then finds the gap. A failover may
        put the clock back, so that instants rise between two jumps only.
        """
        first = self._first_from(0)
        if first is None or first.at_ms >= at_ms:
            return 0
        last, numbering, _ = self.end()
        for span in numbering.spans(first.before, last):
            newest = self._newest_of(span)
            if newest is not None and newest.at_ms >= at_ms:
                return self._before_instant_in(EntrySpan(span.after, newest.sequence), at_ms)
        return last

    def _before_instant_in(self, span: EntrySpan, at_ms: int) -> int:
        """Search a span whose newest entry is not before the instant."""
        low, high = span.after + 1, span.until  # the first that is not before it lies here
        while low < high:
            middle = (low + high) // 2
            entry = self._first_from(middle)
            if entry is None or entry.at_ms >= at_ms:
                high = middle
            else:
                low = entry.sequence + 1
        return low - 1

    def _before_first(self) -> int:
        first = self._first_from(0)
        return self.last() if first is None else first.before

    def _newest_of(self, span: EntrySpan) -> EntryHead | None:
        with translated_errors():
            found = self._client.xrevrange(self._key, span.until, span.after + 1, count=1)
        return read_head(*found[0]) if found else None

    def _first_from(self, sequence: int) -> EntryHead | None:
        with translated_errors():
            found = self._client.xrange(self._key, sequence, "+", count=1)
        return read_head(*found[0]) if found else None
