"""The journal's entries, decoded by a reader of its own: kind, instant, total, ids and notes."""

import struct
from typing import NamedTuple

KINDS_WITH_ATTEMPT = {
    "delivered",
    "shunted",
    "retried",
    "cancelled",
    "dropped",
    "expired",
    "dead",
}
KINDS_WITH_REASON = {"expired", "dead"}


class Note(NamedTuple):
    due_at_ms: int
    attempt: int | None
    reason: int | None


class JournalEntry(NamedTuple):
    sequence: int
    kind: str
    at_ms: int
    total_bytes: int
    items: list[tuple[str, Note]]
    size: int


def read_entry(stream_id: bytes, fields: dict[bytes, bytes]) -> JournalEntry:
    kind = fields[b"k"].decode()
    flat = _strings(fields[b"i"])
    items = [
        (name.decode(), _note(kind, note)) for name, note in zip(flat[::2], flat[1::2], strict=True)
    ]
    sequence = int(stream_id.removesuffix(b"-0"))
    return JournalEntry(
        sequence, kind, int(fields[b"t"]), int(fields[b"b"]), items, len(fields[b"i"])
    )


def _note(kind: str, note: bytes) -> Note:
    widths = 6 + 4 * (kind in KINDS_WITH_ATTEMPT) + (kind in KINDS_WITH_REASON)
    assert len(note) == widths, (kind, note)
    attempt = int.from_bytes(note[6:10]) if kind in KINDS_WITH_ATTEMPT else None
    reason = note[10] if kind in KINDS_WITH_REASON else None
    return Note(int.from_bytes(note[:6]), attempt, reason)


def _strings(packed: bytes) -> list[bytes]:
    """Read a msgpack array of raw strings, which need not be text."""
    count, at = _head(packed, 0, 0x90, 0xF0, {0xDC: ">H", 0xDD: ">I"})
    strings = []
    for _ in range(count):
        size, at = _head(packed, at, 0xA0, 0xE0, {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"})
        strings.append(packed[at : at + size])
        at += size
    assert at == len(packed)
    return strings


def _head(packed: bytes, at: int, fix: int, mask: int, wider: dict[int, str]) -> tuple[int, int]:
    first = packed[at]
    if first in wider:
        (number,) = struct.unpack_from(wider[first], packed, at + 1)
        return number, at + 1 + struct.calcsize(wider[first])
    assert first & mask == fix, packed[at : at + 20]
    return first & ~mask & 0xFF, at + 1
