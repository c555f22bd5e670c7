"""Builds dead envelopes from refused messages that the dead-letter target rejects for good.

The store's limits are no reason to lose it: a large body is kept in parts, and a key or headers
that no envelope may have are kept as text, in parts before those of the body.
"""

from collections.abc import Sequence
from hashlib import blake2b

from msgspec.structs import replace

from duebridge.config.fields import MAX_BODY_BYTES
from duebridge.envelope import Envelope, Headers, Properties, random_id
from duebridge.errors import EnvelopeError
from duebridge.intake.ids import sound_id
from duebridge.intake.letters import ERROR_CLASS, original_headers
from duebridge.intake.requests import NOW, RefusedMessage
from duebridge.ports.source import Arrival
from duebridge.store.wire.record import pack
from duebridge.store.wire.transitions import KeptMessage

PART = "x-dlq-part"
HASH_BYTES = 8


def as_dead_envelopes(refusal: RefusedMessage) -> list[KeptMessage]:
    """Return the envelopes that keep a refused message whole; the same ids at each redelivery.

    One, or where it is too large several, whose header `x-dlq-part` counts them: `1/3`. A message
    without an id gets a random one.
    """
    arrival = refusal.arrival
    bodies = _pieces(arrival.body)
    first = Envelope(
        id=_id(arrival),
        body=bodies[0],
        due=NOW,
        key=arrival.key,
        headers=original_headers(arrival.headers),
        properties=arrival.properties or Properties(),
    )
    if not _can_be_stored(_part(first, bodies[0], len(bodies), len(bodies))):
        bodies = [*_pieces(_described(first)), *bodies]
        first = Envelope(id=first.id, body=None, due=NOW)
    parts = [_part(first, body, n, len(bodies)) for n, body in enumerate(bodies, 1)]
    return [KeptMessage(each, refusal.reason, f"{ERROR_CLASS}\n{refusal.text}") for each in parts]


def _part(first: Envelope, body: bytes | None, number: int, count: int) -> Envelope:
    if count == 1:
        return first
    headers: Headers = (*first.headers, (PART, f"{number}/{count}"))
    return replace(first, id=sound_id(f"{first.id}~{number}"), body=body, headers=headers)


def _pieces(body: bytes | None) -> Sequence[bytes | None]:
    if body is None or len(body) <= MAX_BODY_BYTES:
        return [body]
    return [body[at : at + MAX_BODY_BYTES] for at in range(0, len(body), MAX_BODY_BYTES)]


def _id(arrival: Arrival) -> str:
    """Return an id that no accepted message has: that of this one's key may be another's."""
    content = repr((arrival.key, arrival.headers)).encode(errors="backslashreplace")
    hashed = blake2b(content + (arrival.body or b""), digest_size=HASH_BYTES).hexdigest()
    return sound_id(f"{arrival.id or random_id()}~{hashed}")


def _can_be_stored(envelope: Envelope) -> bool:
    try:
        pack(envelope)
    except (EnvelopeError, ValueError, OverflowError, TypeError):
        return False
    return True


def _described(envelope: Envelope) -> bytes:
    whole = {
        "key": envelope.key,
        "headers": envelope.headers,
        "properties": envelope.properties,
    }
    return repr(whole).encode(errors="backslashreplace")
