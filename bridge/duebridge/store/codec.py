"""An envelope's content as the bytes the store keeps, and back.

A blob is one codec byte and a msgpack array (`Content`), zstd-compressed when that pays. Scripts
never look inside; what they need stands in the record's prefix (`duebridge.store.record`).
"""

import threading
from hashlib import blake2b
from typing import Any

import msgspec
import zstandard

from duebridge.envelope import Envelope, Properties, Target
from duebridge.errors import EnvelopeError, RecordDamaged

PLAIN, ZSTD = b"\x00", b"\x01"
COMPRESS_FROM_BYTES = 512  # below it, zstd saves nothing worth its time
KEEP_COMPRESSED_BELOW = 0.9  # of the plain size
MAX_CONTENT_BYTES = 64 * 1024 * 1024  # a damaged blob must not inflate without end
HASH_BYTES = 8


class Content(msgspec.Struct, frozen=True, array_like=True):
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
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Content)
_NO_PROPERTIES = Properties()


class Packed(msgspec.Struct, frozen=True):
    """An envelope's blob, and the hash that tells same content from other content."""

    blob: bytes
    content_hash: bytes


def pack(envelope: Envelope) -> Packed:
    """Return the blob and the hash over every field as given, durations in ms, never resolved.

    Raises `EnvelopeError` for what could be stored but not be read again.
    """
    properties = None if envelope.properties == _NO_PROPERTIES else envelope.properties
    content = Content(
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
    given = f"{envelope.due} {envelope.expires} {envelope.remember_ms}".encode()
    content_hash = blake2b(plain, digest_size=HASH_BYTES, key=given[:64]).digest()
    return Packed(_compress(plain), content_hash)


def _compress(plain: bytes) -> bytes:
    if len(plain) >= COMPRESS_FROM_BYTES:
        compressed = _zstd.compressor.compress(plain)
        if len(compressed) < KEEP_COMPRESSED_BELOW * len(plain):
            return ZSTD + compressed
    return PLAIN + plain


def unpack(blob: bytes) -> Content:
    """Return the content of a blob; raises `RecordDamaged` if it cannot be read whole."""
    codec, packed = blob[:1], blob[1:]
    try:
        if codec == ZSTD:
            packed = _decompress(packed)
        elif codec != PLAIN:
            raise RecordDamaged(f"blob: expected codec 0 or 1; got {codec!r}")
        return _decoder.decode(packed)
    except (msgspec.DecodeError, zstandard.ZstdError, ValueError, RecursionError) as error:
        raise RecordDamaged(f"blob of {len(blob)} bytes: {error}") from error


def _decompress(packed: bytes) -> bytes:
    size = zstandard.frame_content_size(packed)
    if not 0 <= size <= MAX_CONTENT_BYTES:
        raise RecordDamaged(f"blob: expected up to {MAX_CONTENT_BYTES} bytes; got {size}")
    return _zstd.decompressor.decompress(packed)
