"""The items of a journal entry by column: several times cheaper than item by item."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from duebridge.store.wire.journal_entry import (
    EntryHead,
    Fields,
    damage_of,
    read_head,
    read_note,
    read_strings,
)

_BY_SIZE = {each.size: each for each in map(struct.Struct, (">HI", ">HII", ">HIIB"))}


class EntryColumns(NamedTuple):
    """The head of an entry and its items; attempts and reasons are None where its kind has none."""

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
    form = _BY_SIZE.get(sizes.pop()) if len(sizes) == 1 else None
    if form is None:
        found = [read_note(note) for note in notes]
        due = [each.due_at_ms for each in found]
        return due, [each.attempt for each in found], [each.reason for each in found]
    high, low, *more = zip(*form.iter_unpack(b"".join(notes)), strict=True)
    due = [above << 32 | below for above, below in zip(high, low, strict=True)]
    attempts, reasons = (*more, nothing, nothing)[:2]
    return due, attempts, reasons
