"""What a dry run has shown, as one field of its form: this is settled then, wherever it is by then.

The id of each letter, with a mark of its life: it has another when it is replayed and dies again.
The longest ids of a whole look take 0.7 MiB, of the 1 MiB that a form may have.
"""

import base64
import binascii
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple, Self

import msgspec

from duebridge.errors import EnvelopeError
from duebridge.store.wire.replies import Entry

MARK_BYTES = 8
_STRAY = "surrogateescape"  # bytes of an id that is no text


class Seen(NamedTuple):
    """The marks of dead envelopes by their ids, in the order of the dry run."""

    marks: dict[str, bytes]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """Return the marks of those that are dead."""
        return cls({each.id: _mark(each) for each in entries if each.state == "dead"})

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the marks of a form's field; raises `EnvelopeError`."""
        try:
            packed = base64.urlsafe_b64decode(text)
            marks = msgspec.msgpack.decode(packed, type=dict[bytes, bytes])
            return cls({each.decode(errors=_STRAY): mark for each, mark in marks.items()})
        except (binascii.Error, ValueError, msgspec.DecodeError):
            raise EnvelopeError("seen: expected the field of a dry run; got another") from None

    @property
    def field(self) -> str:
        """The marks as a form carries them."""
        marks = {each.encode(errors=_STRAY): mark for each, mark in self.marks.items()}
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(marks)).decode()

    def has(self, entry: Entry) -> bool:
        """Whether an envelope is dead as it was."""
        return entry.state == "dead" and self.marks.get(entry.id) == _mark(entry)


def _mark(entry: Entry) -> bytes:
    generation = entry.record.generation if entry.record else 0
    life = f"{generation} {entry.flight.last_failed_at_ms} {entry.id}"
    return blake2b(life.encode(errors=_STRAY), digest_size=MARK_BYTES).digest()
