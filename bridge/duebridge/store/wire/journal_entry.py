"""An entry of a shard's journal as the stream has it: lua/shared/journal.lua has the layout."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeAlias, cast

from duebridge.errors import RecordDamaged, described

Fields: TypeAlias = Mapping[bytes, bytes]

_DUE_BYTES, _ATTEMPT_BYTES, _REASON_BYTES = 6, 10, 11  # of a note up to and with that field
_NEXT_BYTES = 6  # of a detail
_NOTES_BY_SIZE = {each.size: each for each in map(struct.Struct, (">HI", ">HII", ">HIIB"))}
_ARRAY = 0x90, 0xF0, {0xDC: ">H", 0xDD: ">I"}  # of msgpack: a short one, its mask, longer ones
_LONGER = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}  # strings that say their size in bytes of its own

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

    `error_class` is what failed, "" if unknown, and `error_message` the beginning of its message;
    `counted` says whether it counts as a failure of the envelope. What waits for its target may go
    before `next_at_ms`.
    """

    due_at_ms: int
    attempt: int | None
    reason: int | None
    next_at_ms: int | None = None
    error_class: str = ""
    counted: bool | None = None
    error_message: str = ""


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


class EntryHead(NamedTuple):
    """The head of an entry: the number of its items, and their bytes."""

    sequence: int
    kind: EventKind
    at_ms: int
    items: int
    size: int
    found: int | None = None

    @property
    def before(self) -> int:
        """The number of the entry before it, whether or not that is still there."""
        return self.sequence - 1 if self.found is None else self.found


@contextmanager
def damage_of(sequence: int) -> Iterator[None]:
    """Raise `RecordDamaged`, which names the entry, where its fields cannot be read."""
    try:
        yield
    except (KeyError, ValueError, IndexError, struct.error) as error:
        raise RecordDamaged(f"journal entry {sequence}: {described(error)}") from error


def read_entry(stream_id: bytes, fields: Fields) -> JournalEntry:
    """Return an entry of the stream; raises `RecordDamaged` where it cannot be read."""
    sequence, kind, at_ms, _, size, found = read_head(stream_id, fields)
    with damage_of(sequence):
        items, total_bytes = _items(fields), int(fields[b"b"])
    actor = fields.get(b"w", b"").decode(errors="backslashreplace")
    return JournalEntry(sequence, kind, at_ms, total_bytes, items, size, found, actor)


def _items(fields: Fields) -> list[tuple[str, Note]]:
    flat = read_strings(fields.get(b"i", b""))
    nothing = [b""] * (len(flat) // 2)
    details = read_strings(fields[b"d"]) if b"d" in fields else nothing
    messages = _messages(fields[b"m"]) if b"m" in fields else nothing
    failed = fields.get(b"f", b"")
    rows = zip(flat[::2], flat[1::2], details, messages, strict=True)
    return [
        (name.decode(errors="backslashreplace"), read_note(note, detail, failed[n : n + 1], said))
        for n, (name, note, detail, said) in enumerate(rows)
    ]


def read_head(stream_id: bytes, fields: Fields) -> EntryHead:
    """Return the head of an entry; raises `RecordDamaged` where it cannot be read."""
    sequence = sequence_of(stream_id)
    with damage_of(sequence):
        items, _ = _head(fields.get(b"i", b""), 0, *_ARRAY)
        kind, at_ms = cast(EventKind, fields[b"k"].decode()), int(fields[b"t"])
        found = int(fields[b"n"]) if b"n" in fields else None
    return EntryHead(sequence, kind, at_ms, items // 2, _size(fields), found)


def _size(fields: Fields) -> int:
    return sum(len(fields.get(each, b"")) for each in (b"i", b"d", b"f", b"m"))


def sequence_of(stream_id: bytes) -> int:
    """Return the number of an entry."""
    return int(stream_id.removesuffix(b"-0"))


def read_note(note: bytes, detail: bytes = b"", failed: bytes = b"", message: bytes = b"") -> Note:
    """Return a note; a newer duebridge may have appended more fields."""
    if len(note) < _DUE_BYTES:
        raise ValueError(f"expected a note of {_DUE_BYTES} bytes or more; got {note!r}")
    attempt = int.from_bytes(note[_DUE_BYTES:_ATTEMPT_BYTES]) if len(note) > _DUE_BYTES else None
    reason = note[_ATTEMPT_BYTES] if len(note) >= _REASON_BYTES else None
    due_at_ms = int.from_bytes(note[:_DUE_BYTES])
    if not (detail or failed):  # nearly all
        return Note(due_at_ms, attempt, reason)
    return Note(
        due_at_ms,
        attempt,
        reason,
        int.from_bytes(detail[:_NEXT_BYTES]) or None,
        detail[_NEXT_BYTES:].decode(errors="backslashreplace"),
        failed == b"1" if failed else None,
        message.decode(errors="ignore"),  # the bound may have cut a character
    )


def _messages(packed: bytes) -> list[bytes]:
    messages, last = [], b""
    for each in read_strings(packed):
        last = each or last
        messages.append(b"" if last == b" " else last)
    return messages


def read_strings(packed: bytes) -> list[bytes]:
    """Return a msgpack array of raw strings, which need not be UTF-8; no library reads those."""
    count, at = _head(packed, 0, *_ARRAY)
    strings = []
    for _ in range(count):
        first = packed[at]
        if 0xA0 <= first < 0xC0:  # nearly all are short: no call for each
            size, at = first - 0xA0, at + 1
        else:
            size, at = _head(packed, at, 0xA0, 0xE0, _LONGER)
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


class EntryColumns(NamedTuple):
    """The head of an entry and its items by column: several times cheaper than item by item.

    Attempts and reasons are None where its kind has none.
    """

    head: EntryHead
    ids: Sequence[str]
    due_at_ms: Sequence[int]
    attempts: Sequence[int | None]
    reasons: Sequence[int | None]


def read_entry_columns(stream_id: bytes, fields: Fields) -> EntryColumns:
    """Return an entry of the stream, without what failed; raises `RecordDamaged`."""
    head = read_head(stream_id, fields)
    with damage_of(head.sequence):
        flat = read_strings(fields.get(b"i", b""))
        ids = [name.decode(errors="backslashreplace") for name in flat[::2]]
        due, attempts, reasons = _notes(flat[1::2])
    return EntryColumns(head, ids, due, attempts, reasons)


def _notes(
    notes: Sequence[bytes],
) -> tuple[Sequence[int], Sequence[int | None], Sequence[int | None]]:
    """Return due instants, attempts and reasons; notes of one size are read together."""
    nothing = [None] * len(notes)
    sizes = {len(note) for note in notes}
    form = _NOTES_BY_SIZE.get(sizes.pop()) if len(sizes) == 1 else None
    if form is None:
        found = [read_note(note) for note in notes]
        due = [each.due_at_ms for each in found]
        return due, [each.attempt for each in found], [each.reason for each in found]
    high, low, *more = zip(*form.iter_unpack(b"".join(notes)), strict=True)
    due = [above << 32 | below for above, below in zip(high, low, strict=True)]
    attempts, reasons = (*more, nothing, nothing)[:2]
    return due, attempts, reasons
