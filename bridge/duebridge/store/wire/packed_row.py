"""An envelope as the schedule script takes it: id, head and content (lua/schedule.lua)."""

import struct
from collections.abc import Iterable
from typing import NamedTuple, Self

from duebridge.envelope import Envelope, Instant
from duebridge.errors import EnvelopeError
from duebridge.store.wire.record import HASH_BYTES, pack

_HEAD = struct.Struct(">BQQQQ")
_DUE_IS_RELATIVE, _EXPIRES_IS_RELATIVE = 1, 2
_REMEMBER, _NOT_AT_ALL = slice(17, 25), bytes(8)


class PackedRow(NamedTuple):
    """An envelope as the schedule script takes it.

    `head` has due, expiry, remember time and generation; `content` the hash and the blob, which no
    script reads. It is empty where the client refused the envelope.
    """

    id: str
    head: bytes
    content: bytes

    @classmethod
    def new(
        cls,
        envelope_id: str,
        due: Instant,
        expires: Instant | None,
        remember_ms: int,
        content: bytes,
        generation: int = 0,
    ) -> Self:
        """Return a row; `generation` is 0, or that of a cold row, which obeys tombstones.

        Raises `EnvelopeError` for an instant or a duration that is no store's.
        """
        flags, expires_ms = _DUE_IS_RELATIVE * due.relative, 0
        if expires is not None:
            flags, expires_ms = flags | _EXPIRES_IS_RELATIVE * expires.relative, expires.ms
        numbers = due.ms, expires_ms, remember_ms, generation
        try:
            return cls(envelope_id, _HEAD.pack(flags, *numbers), content)
        except struct.error:
            expected = "expected due, expires, remember and generation of 0 or more"
            raise EnvelopeError(f"envelope: {expected}; got {numbers}") from None

    @property
    def due(self) -> Instant:
        """When the envelope is due."""
        flags, due_ms, *_ = _HEAD.unpack(self.head)
        return Instant(due_ms, relative=bool(flags & _DUE_IS_RELATIVE))

    @property
    def expires(self) -> Instant | None:
        """When the envelope expires; None for never."""
        flags, _, expires_ms, *_ = _HEAD.unpack(self.head)
        is_relative = bool(flags & _EXPIRES_IS_RELATIVE)
        return Instant(expires_ms, is_relative) if expires_ms or is_relative else None

    @property
    def remember_ms(self) -> int:
        """How long the id is remembered after the envelope's end."""
        return int.from_bytes(self.head[_REMEMBER])

    @property
    def content_hash(self) -> bytes:
        """The hash over every field as given."""
        return self.content[:HASH_BYTES]

    @property
    def blob(self) -> bytes:
        """The part that no script reads (`EnvelopeContent`)."""
        return self.content[HASH_BYTES:]


def are_remembered(rows: Iterable[PackedRow]) -> bool:
    """Whether the store remembers each of these ids for some time."""
    return _NOT_AT_ALL not in {row.head[_REMEMBER] for row in rows}


def pack_row(envelope: Envelope, remember_ms: int, least_ms: int = 0) -> PackedRow:
    """Pack an envelope.

    `remember_ms` is its route's, for an envelope without one of its own; it is remembered for
    `least_ms` at least.

    Raises `EnvelopeError` for an envelope that could be stored but not be read again, and for one
    with a negative instant, which `Envelope.new` would have refused.
    """
    packed = pack(envelope)
    given_ms = remember_ms if envelope.remember_ms is None else envelope.remember_ms
    return PackedRow.new(
        envelope.id,
        envelope.due,
        envelope.expires,
        max(given_ms, least_ms),
        packed.content_hash + packed.blob,
    )
