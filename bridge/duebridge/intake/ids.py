"""The ids of an intake's envelopes: stable across redeliveries, if the message has an identity."""

from hashlib import blake2b
from itertools import chain, count

from duebridge.envelope import SHORT_BYTES, random_id
from duebridge.ports.source import Arrival
from duebridge.store.routing import shard_number

ID_BYTES = 16  # of the hash that replaces an id which the limits refuse


def sound_id(text: str) -> str:
    """Return an id, or its hash where it is too long or not printable."""
    if text.isascii():
        if len(text) <= SHORT_BYTES and text.isprintable():
            return text
    elif text.isprintable() and len(text.encode(errors="replace")) <= SHORT_BYTES:
        return text
    return _hashed(text.encode(errors="surrogatepass"))


def key_id(key: bytes) -> str:
    """Return the id that a key gives: its text, or its hash."""
    try:
        return sound_id(key.decode()) if key else _hashed(key)
    except UnicodeDecodeError:
        return _hashed(key)


def own_id(arrival: Arrival) -> str:
    """Return the id that programs know a message by: its key or message_id; empty for none."""
    if arrival.key is not None:
        return key_id(arrival.key)
    return sound_id(arrival.message_id if arrival.place is not None else arrival.id)


def stored_id(arrival: Arrival, *, replace: bool) -> str:
    """Return the id of an arrival's envelope; a random one if the message has no identity."""
    if replace and (own := own_id(arrival)):
        return own
    return sound_id(arrival.id) if arrival.id else random_id()


def may_be_another(arrival: Arrival, *, replace: bool) -> bool:
    """Return whether a message with an ended envelope's id may be another one, so is stored.

    Of what has a place in a log the store knows that by the place.
    """
    has_offset_id = arrival.is_id_unique and not (replace and arrival.key is not None)
    return arrival.place is None and not (arrival.is_redelivered or has_offset_id)


def republished_id(arrival: Arrival, due_at: str) -> str:
    """Return a new id for one of our deliveries that a program republished, to delay it again.

    Such a message has the delivery's own message_id, body and headers: without an id of its own it
    would be the envelope that was delivered.
    """
    hashed = blake2b(f"{arrival.id}\0{due_at}".encode(errors="surrogatepass"), digest_size=8)
    return sound_id(f"{arrival.id.partition('~')[0]}~{hashed.hexdigest()}")


def unused_id(taken: str, suffix: str, shards: int) -> str:
    """Return an unused id in the same shard as `taken`, so that both share one log position."""
    wanted = shard_number(taken, shards)
    ends = chain([""], (f"~{number}" for number in count(1)))
    found = (sound_id(f"{taken}~{suffix}{end}") for end in ends)
    return next(each for each in found if shard_number(each, shards) == wanted)


def _hashed(data: bytes) -> str:
    return blake2b(data, digest_size=ID_BYTES).hexdigest()
