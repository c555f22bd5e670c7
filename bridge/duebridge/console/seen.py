"""What a dry run has shown, as one field of its form: what is settled then is among it.

A mark of each letter, of its id and its life: it has another when it is replayed and dies again,
and ids in full would make a form of a megabyte.
"""

import base64
import binascii
from hashlib import blake2b
from typing import NamedTuple, Self

from duebridge.errors import EnvelopeError
from duebridge.store.wire.replies import Entry

MARK_BYTES = 8


class Seen(NamedTuple):
    """The marks of dead envelopes."""

    marks: frozenset[bytes]

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the marks of a form's field; raises `EnvelopeError`."""
        try:
            packed = base64.urlsafe_b64decode(text)
        except (binascii.Error, ValueError):
            raise EnvelopeError("seen: expected the field of a dry run; got another") from None
        places = range(0, len(packed), MARK_BYTES)
        return cls(frozenset(packed[at : at + MARK_BYTES] for at in places))

    @property
    def field(self) -> str:
        """The marks as a form carries them."""
        return base64.urlsafe_b64encode(b"".join(sorted(self.marks))).decode()


def mark_of(entry: Entry) -> bytes:
    """Return the mark of a dead envelope."""
    generation = entry.record.generation if entry.record else 0
    life = f"{generation} {entry.flight.last_failed_at_ms} {entry.id}"
    return blake2b(life.encode(), digest_size=MARK_BYTES).digest()
