"""Reads the journal of a shard: the transitions of its envelopes, in order.

The layout is lua/shared/journal.lua's. Entries are numbered densely, but for the jump of each
renewal (`store.numbering`), so that a reader sees a gap where the cap cut entries that it had not
read yet, and where the store lost entries that it had.
"""

import struct
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from duebridge.errors import RecordDamaged, StoreError
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.numbering import Numbering
from duebridge.store.server.connection import Connection
from duebridge.store.server.errors import translated_errors

PAGE = 16  # entries a read: at most some 4 MiB, since one has up to 1,000 items

_DUE_BYTES, _ATTEMPT_BYTES, _REASON_BYTES = 6, 10, 11  # of a note up to and with that field
_NEXT_BYTES = 6  # of a detail

EventKind: TypeAlias = Literal[
    "accepted",
    "replaced",
    "rescheduled",
    "demoted",
    "retried",
    "delivered",
    "expired",
    "dead",
    "shunted",
    "replayed",
    "dropped",
    "cancelled",
    "renewed",
]


class Note(NamedTuple):
    """The note of an entry about one envelope; None for a field that its kind lacks.

    `error_class` is what failed, "" if unknown. What waits for its target may go before
    `next_at_ms`.
    """

    due_at_ms: int
    attempt: int | None
    reason: int | None
    next_at_ms: int | None = None
    error_class: str = ""


class JournalEntry(NamedTuple):
    """One batch of transitions of one kind; `size` is the bytes of the items.

    `sequence` is dense, but after `renewed`, which has no items but the last number `found`, and
    begins beyond every number ever given out. `actor` is the person whose command it was, if one.
    A newer duebridge may write kinds beyond `EventKind`, which are passed on.
    """

    sequence: int
    kind: EventKind
    at_ms: int
    total_bytes: int
    items: list[tuple[str, Note]]
    size: int
    found: int | None = None
    actor: str = ""

    @property
    def before(self) -> int:
        """The number of the entry before it, whether or not that is still there."""
        return self.sequence - 1 if self.found is None else self.found


class JournalEnd(NamedTuple):
    """The number of the newest entry ever written, 0 for none, and the jumps up to it."""

    last: int
    numbering: Numbering


class Journal:
    """The journal of a shard, read a page at a time. All methods raise `StoreError`."""

    def __init__(self, connection: Connection, shard: Shard) -> None:
        self.shard = shard
        self._connection = connection
        self._client: Any = connection.client
        self._key = f"{shard.tag}:journal"
        self._meta = f"{shard.tag}:meta"

    def last(self) -> int:
        """Return the number of the newest entry ever written; 0 for none."""
        return self.end().last

    def end(self) -> JournalEnd:
        """Return the newest number, and the jumps up to it."""
        with translated_errors():
            last, jumps = self._client.hmget(self._meta, "journal_sequence", "journal_jumps")
        last = last or b"0"
        if not last.isdigit():
            raise StoreError(f"{self._meta}: journal_sequence: expected a number; got {last!r}")
        return JournalEnd(int(last), Numbering.of(jumps or b""))

    def awaits_renewal(self) -> bool:
        """Tell whether the server may have lost entries, and no call has renewed the shard yet."""
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

    def note_kept(self, until: int) -> None:
        """Note that an outside table has the entries up to a number; the note never goes back."""
        DelayStore(self._connection, self.shard).note("journal_kept", until, "rise")

    def read(self, after: int, until: int) -> Iterator[JournalEntry]:
        """Yield the entries after `after` up to `until`; entries that the cap cut are missing."""
        while after < until:
            with translated_errors():
                page = self._client.xrange(self._key, after + 1, until, count=PAGE)
            for entry in page:
                yield read_entry(*entry)
            if len(page) < PAGE:
                return
            after = _sequence(page[-1][0])

    def before_newest(self, items: int) -> int:
        """Return the number after which the newest `items` items lie, and maybe some more."""
        found, before = 0, "+"
        while found < items:
            with translated_errors():
                page = self._client.xrevrange(self._key, before, "-", count=PAGE)
            if not page:
                return self._before_first()
            for found_entry in page:
                entry = read_entry(*found_entry)
                found += len(entry.items)
                if found >= items:
                    return entry.before
            before = f"({entry.sequence}-0"
        return self.last()

    def before_instant(self, at_ms: int) -> int:
        """Return the number after which all entries since an instant lie.

        It is 0 where the cap may have cut some of them: a reader then finds the gap.
        """
        entry = self._first_from(0)
        if entry is None or entry.at_ms >= at_ms:
            return 0
        low, high = entry.sequence + 1, self.last() + 1
        while low < high:  # the first entry that is not before the instant lies in [low, high]
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

    def _first_from(self, sequence: int) -> JournalEntry | None:
        with translated_errors():
            found = self._client.xrange(self._key, sequence, "+", count=1)
        return read_entry(*found[0]) if found else None


def read_entry(stream_id: bytes, fields: dict[bytes, bytes]) -> JournalEntry:
    """Return an entry of the stream; raises `RecordDamaged` where it cannot be read."""
    sequence, packed = _sequence(stream_id), fields.get(b"i", b"")
    detailed = fields.get(b"d", b"")
    try:
        flat = _strings(packed)
        details = _strings(detailed) if detailed else [b""] * (len(flat) // 2)
        items = [
            (name.decode(errors="backslashreplace"), _note(note, detail))
            for name, note, detail in zip(flat[::2], flat[1::2], details, strict=True)
        ]
        kind = cast(EventKind, fields[b"k"].decode())
        at_ms, total = int(fields[b"t"]), int(fields[b"b"])
        before = int(fields[b"n"]) if b"n" in fields else None
    except (KeyError, ValueError, IndexError, struct.error) as error:
        raise RecordDamaged(f"journal entry {sequence}: {type(error).__name__}: {error}") from error
    size = len(packed) + len(detailed)
    actor = fields.get(b"w", b"").decode(errors="backslashreplace")
    return JournalEntry(sequence, kind, at_ms, total, items, size, before, actor)


def _sequence(stream_id: bytes) -> int:
    return int(stream_id.removesuffix(b"-0"))


def _note(note: bytes, detail: bytes) -> Note:
    """Return a note; a newer duebridge may have appended more fields."""
    if len(note) < _DUE_BYTES:
        raise ValueError(f"expected a note of {_DUE_BYTES} bytes or more; got {note!r}")
    attempt = int.from_bytes(note[_DUE_BYTES:_ATTEMPT_BYTES]) if len(note) > _DUE_BYTES else None
    reason = note[_ATTEMPT_BYTES] if len(note) >= _REASON_BYTES else None
    return Note(
        int.from_bytes(note[:_DUE_BYTES]),
        attempt,
        reason,
        int.from_bytes(detail[:_NEXT_BYTES]) or None,
        detail[_NEXT_BYTES:].decode(errors="backslashreplace"),
    )


def _strings(packed: bytes) -> list[bytes]:
    """Return a msgpack array of raw strings, which need not be UTF-8; no library reads those."""
    count, at = _head(packed, 0, 0x90, 0xF0, {0xDC: ">H", 0xDD: ">I"})
    strings = []
    for _ in range(count):
        size, at = _head(packed, at, 0xA0, 0xE0, {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"})
        strings.append(packed[at : at + size])
        at += size
    if at != len(packed):
        raise ValueError(f"expected {len(packed)} bytes of items; got {at}")
    return strings


def _head(packed: bytes, at: int, fix: int, mask: int, wider: dict[int, str]) -> tuple[int, int]:
    first = packed[at]
    if first in wider:
        (number,) = struct.unpack_from(wider[first], packed, at + 1)
        return number, at + 1 + struct.calcsize(wider[first])
    if first & mask != fix:
        raise ValueError(f"expected msgpack of type {fix:#x}; got {packed[at : at + 20]!r}")
    return first & ~mask & 0xFF, at + 1
