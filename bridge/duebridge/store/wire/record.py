"""The stored form of an envelope: its record (a fixed prefix, then a blob) and its flight.

The prefix and the flight are laid out as in lua/shared/record.lua and flight.lua; six-byte
integers are read as 2 + 4. A blob is one codec byte and a msgpack array (`EnvelopeContent`),
zstd-compressed when that pays. Scripts never decode a blob; they take its record's layout from
the codec: 0.2.0 can read no header that is an AMQP field, so that such a record is of layout 2,
which it leaves alone.
"""

import threading
from hashlib import blake2b
from struct import Struct
from typing import Any

import msgspec
import zstandard
from msgspec.msgpack import Ext

from duebridge.config.fields import MAX_BODY_BYTES
from duebridge.envelope import (
    NO_PROPERTIES,
    Envelope,
    Properties,
    Target,
    target_as_dict,
    target_of,
)
from duebridge.errors import EnvelopeError, RecordDamaged, RecordTooNew

LAYOUT = 1  # of a route, and of a record that 0.2.0 can read
NEWEST_LAYOUT = 2  # of a record with an AMQP field among its headers
PREFIX = Struct(">BHIHIHIHIHI8s")
_FLIGHT = Struct(">12sHIIHHHHBBBBBHIHI")

PLAIN, ZSTD = b"\x00", b"\x01"
FIELDS_PLAIN, FIELDS_ZSTD = b"\x02", b"\x03"  # with an AMQP field among the headers
COMPRESS_FROM_BYTES = 512  # below it, zstd saves nothing worth its time
KEEP_COMPRESSED_BELOW = 0.9  # of the plain size
MAX_CONTENT_BYTES = 2 * MAX_BODY_BYTES  # of body, key and headers; bounds what a script writes
MAX_READ_BYTES = 64 * 1024 * 1024  # as much as 0.2.0 wrote; a damaged blob must not grow further
HASH_BYTES = 8


class Record(msgspec.Struct, frozen=True, gc=False):
    """A stored envelope; instants in epoch ms, 0 for none."""

    due_at_ms: int
    expires_at_ms: int
    remember_ms: int
    scheduled_at_ms: int
    generation: int
    content_hash: bytes
    blob: bytes


class Flight(msgspec.Struct, frozen=True, gc=False):
    """The state of an envelope in flight; counts but `attempt` begin at accept or replay.

    `held_since_ms` is the first target failure of its streak, 0 for none. `letters` counts the
    failed tries of its dead letter, `letter_error` has the class and the message of the last.
    """

    attempt: int
    failures: int = 0
    retries: int = 0
    expiries: int = 0
    singles: int = 0
    unsure: bool = False
    cancel: bool = False
    shunting: bool = False
    reason: int = 0
    first_failed_at_ms: int = 0
    last_failed_at_ms: int = 0
    error_class: str = ""
    error_message: str = ""
    held_since_ms: int = 0
    letters: int = 0
    letter_error: str = ""


NOT_IN_FLIGHT = Flight(attempt=0)
FIRST_ATTEMPT = Flight(attempt=1)


def read_record(data: bytes) -> Record:
    """Return the record; raises `RecordTooNew` or `RecordDamaged` where it cannot be read."""
    if data[:1] > bytes([NEWEST_LAYOUT]):
        raise RecordTooNew(f"record: expected layout {NEWEST_LAYOUT} or older; got {data[0]}")
    if data[:1] < bytes([LAYOUT]) or len(data) < PREFIX.size:
        expected = f"expected layout {LAYOUT} to {NEWEST_LAYOUT} and a prefix"
        raise RecordDamaged(f"record: {expected}; got {data[:40]!r}")
    _, d, due, e, expires, r, remember, s, scheduled, g, generation, content_hash = (
        PREFIX.unpack_from(data)
    )
    return Record(
        d << 32 | due,
        e << 32 | expires,
        r << 32 | remember,
        s << 32 | scheduled,
        g << 32 | generation,
        content_hash,
        data[PREFIX.size :],
    )


def read_flight(data: bytes) -> Flight:
    """Return the flight, `NOT_IN_FLIGHT` for none; raises `RecordDamaged` if it cannot be read."""
    if not data:
        return NOT_IN_FLIGHT
    if len(data) < _FLIGHT.size:
        raise RecordDamaged(f"flight: expected {_FLIGHT.size} bytes or more; got {len(data)}")
    values = _FLIGHT.unpack_from(data)
    attempt, failures, retries, expiries, singles = values[3:8]
    unsure, cancel, _single, shunting, reason, f, first, last_high, last = values[8:]
    text, _, tail = data[_FLIGHT.size :].decode(errors="replace").partition("\0")
    error_class, _, message = text.partition("\n")
    held_since, letters, letter_error = tail[:13], tail[21:26], tail[26:]
    return Flight(
        attempt,
        failures,
        retries,
        expiries,
        singles,
        bool(unsure),
        cancel == 1,  # 2: a repeat raised how long to remember the id
        bool(shunting),
        reason,
        f << 32 | first,
        last_high << 32 | last,
        error_class,
        message,
        int(held_since) if held_since.isdecimal() else 0,
        int(letters) if letters.isdecimal() else 0,
        letter_error,
    )


class EnvelopeContent(msgspec.Struct, frozen=True, array_like=True):
    """The part of an envelope that no script needs to read."""

    body: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, Any], ...] = ()  # HeaderValue; msgspec has no bytes | str
    max_attempts: int | None = None
    properties: Properties | None = None
    target: Target | None = None


class _PerThread(threading.local):
    """zstd contexts, which are costly to make and must not be shared between threads."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=3)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _PerThread()
_encoder = msgspec.msgpack.Encoder(enc_hook=target_as_dict)
_decoder = msgspec.msgpack.Decoder(EnvelopeContent, dec_hook=target_of)
_PLAIN_OF = {ZSTD: PLAIN, FIELDS_ZSTD: FIELDS_PLAIN}


class PackedEnvelope(msgspec.Struct, frozen=True):
    """An envelope's blob and the hash of its content."""

    blob: bytes
    content_hash: bytes


def pack(envelope: Envelope) -> PackedEnvelope:
    """Return the blob and the hash over every field as given, durations in ms, never resolved.

    Raises `EnvelopeError` for an envelope that could be stored but not be read again.
    """
    properties = None if envelope.properties == NO_PROPERTIES else envelope.properties
    content = EnvelopeContent(
        envelope.body,
        envelope.key,
        envelope.headers,
        envelope.max_attempts,
        properties,
        envelope.target,
    )
    plain = _encoder.encode(content)
    if len(plain) > MAX_CONTENT_BYTES:
        what = f"expected up to {MAX_CONTENT_BYTES} bytes of body, key and headers"
        raise EnvelopeError(f"envelope: {what}; got {len(plain)}")
    content_hash = blake2b(plain, digest_size=HASH_BYTES, key=_times(envelope)[:64]).digest()
    return PackedEnvelope(_blob(content, plain), content_hash)


def _times(envelope: Envelope) -> bytes:
    """Return the instants and the remember time as given, as they are hashed with the content."""
    due, expires, remember_ms = envelope.due, envelope.expires, envelope.remember_ms
    if not (expires or due.relative) and remember_ms is None:  # as most rows of a bulk load
        return b"%d None None" % due.ms
    sign = "+" if due.relative else ""  # as `Instant.__str__`, but without its call
    return f"{sign}{due.ms} {expires!s} {remember_ms}".encode()


def _blob(content: EnvelopeContent, plain: bytes, *, compressed: bool = True) -> bytes:
    """Return the blob of a content and its msgpack form; compressed if that pays."""
    headers = content.headers
    has_fields = bool(headers) and any(type(value) is Ext for _, value in headers)
    if compressed and len(plain) >= COMPRESS_FROM_BYTES:
        packed = _zstd.compressor.compress(plain)
        if len(packed) < KEEP_COMPRESSED_BELOW * len(plain):
            return (FIELDS_ZSTD if has_fields else ZSTD) + packed
    return (FIELDS_PLAIN if has_fields else PLAIN) + plain


def pack_content(content: EnvelopeContent, *, compressed: bool = True) -> bytes:
    """Return the blob of a content; compressed if that pays, unless it is to be plain."""
    return _blob(content, _encoder.encode(content), compressed=compressed)


def decoded_size(blob: bytes) -> int:
    """Return the size of a blob's content in memory; of damaged ones their own size."""
    if blob[:1] not in _PLAIN_OF:
        return len(blob)
    try:
        size: int = zstandard.frame_content_size(blob[1:])
    except zstandard.ZstdError:
        return len(blob)
    return size if 0 <= size <= MAX_CONTENT_BYTES else len(blob)


def unpack(blob: bytes) -> EnvelopeContent:
    """Return the content of a blob; raises `RecordDamaged` if it cannot be read whole."""
    return unpack_plain(plain_blob(blob))


def unpack_plain(blob: bytes) -> EnvelopeContent:
    """Return the content of a blob that is not compressed, as `unpack`."""
    try:
        return _decoder.decode(blob[1:])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise RecordDamaged(f"blob of {len(blob)} bytes: {error}") from error


def plain_blob(blob: bytes) -> bytes:
    """Return a blob uncompressed; raises `RecordDamaged` if it cannot be read whole."""
    codec, packed = blob[:1], blob[1:]
    if codec in (PLAIN, FIELDS_PLAIN):
        return blob
    if codec not in _PLAIN_OF:
        raise RecordDamaged(f"blob: expected codec 0 to 3; got {codec!r}")
    try:
        return _PLAIN_OF[codec] + _decompress(packed)
    except (zstandard.ZstdError, ValueError) as error:
        raise RecordDamaged(f"blob of {len(blob)} bytes: {error}") from error


def _decompress(packed: bytes) -> bytes:
    size = zstandard.frame_content_size(packed)
    if not 0 <= size <= MAX_READ_BYTES:
        raise RecordDamaged(f"blob: expected up to {MAX_READ_BYTES} bytes; got {size}")
    return _zstd.decompressor.decompress(packed)
