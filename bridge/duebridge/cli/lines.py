"""JSON lines: one envelope each, with the fields of the Python API; each read on its own.

The body is text or {"base64": "..."}, and null is a Kafka tombstone; so are the key and the values
of headers, which are an object or a list of pairs. A line that begins with # is a remark.
"""

import base64
import binascii
import sys
from collections.abc import Iterator
from io import BufferedReader
from typing import NamedTuple, TypeAlias

import msgspec

from duebridge.cli.instants import parse_at, parse_expires
from duebridge.envelope import Envelope, HeaderValue, Target
from duebridge.errors import EnvelopeError

FROM_STDIN = "-"  # in place of a body or an id
CHUNK_BYTES = 256 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that are no text."""

    base64: str


Value: TypeAlias = str | int | bool | Base64 | None


class Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An envelope as a line has it."""

    body: str | Base64 | None
    delay: str | None = None
    at: str | int | None = None
    id: str | None = None
    expires: str | int | None = None
    key: str | Base64 | None = None
    headers: dict[str, Value] | list[tuple[str, Value]] = {}
    max_attempts: int | None = None
    remember: str | None = None
    target: Target | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None
    app_id: str | None = None
    user_id: str | None = None
    expiration: str | None = None
    priority: int | None = None
    timestamp: int | None = None


class Line(NamedTuple):
    """A line and its number, from 1."""

    number: int
    text: bytes


_decoder = msgspec.json.Decoder(Fields)


def opened_stdin() -> BufferedReader:
    """Return standard input as bytes; raises `EnvelopeError` where the process has none."""
    if sys.stdin is None:  # its number may be a socket's by now
        raise EnvelopeError("standard input: expected it open; got it closed")
    return open(sys.stdin.fileno(), "rb", closefd=False)


def read_batches(stream: BufferedReader, size: int) -> Iterator[list[Line]]:
    """Yield lines, at most `size` at once, as soon as they are there; memory stays bounded."""
    number, rest = 1, b""
    while chunk := stream.read1(CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        rest = rest[: MAX_LINE_BYTES + 1]  # too long already: the rest of it may go
        lines = [Line(at, text) for at, text in enumerate(whole, number)]
        yield from (lines[at : at + size] for at in range(0, len(lines), size))
        number += len(lines)
    if rest:
        yield [Line(number, rest)]


def parse_line(text: bytes) -> Envelope:
    """Return the envelope of a line; raises `EnvelopeError`, which says what was expected."""
    if len(text) > MAX_LINE_BYTES:
        raise EnvelopeError(f"expected at most {MAX_LINE_BYTES} bytes")
    try:
        return _envelope(_decoder.decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # the latter of a key's bytes
        raise EnvelopeError(f"expected an envelope as a JSON object: {error}") from error


def is_empty(text: bytes) -> bool:
    """Whether a line is blank or a remark."""
    return text.lstrip()[:1] in (b"", b"#")


def json_value(value: HeaderValue) -> Value:
    """Return a value as a line has it: bytes as text where they are UTF-8, else as base64."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Base64(base64.b64encode(value).decode())


def _envelope(fields: Fields) -> Envelope:
    given = msgspec.structs.asdict(fields)
    pairs = fields.headers.items() if isinstance(fields.headers, dict) else fields.headers
    given["key"] = _bytes(fields.key)
    given["headers"] = [(name, _header_value(value)) for name, value in pairs]
    given["at"] = None if fields.at is None else parse_at(fields.at, "at")
    given["expires"] = None if fields.expires is None else parse_expires(fields.expires)
    del given["body"]
    return Envelope.new(_bytes(fields.body), **given)


def _bytes(value: str | Base64 | None) -> bytes | None:
    if isinstance(value, Base64):
        return _decoded(value)
    return None if value is None else value.encode()


def _header_value(value: Value) -> HeaderValue:
    return _decoded(value) if isinstance(value, Base64) else value


def _decoded(value: Base64) -> bytes:
    try:
        return base64.b64decode(value.base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EnvelopeError(f"base64: expected base64 with its padding: {error}") from error
