"""JSON lines on standard input: envelopes to send, ids to cancel, and the file of refused lines.

An envelope has the fields of the Python API. Its body is text, {"base64": "..."}, or null for a
Kafka tombstone; `json`, in place of `body`, is any JSON value. Keys and header values are written
like bodies; headers are an object or a list of pairs. A line that begins with # is a comment.
"""

import base64
import binascii
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.msgpack import Ext

from duebridge.amqp_fields import shown_field
from duebridge.cli.instants import parse_at, parse_expires
from duebridge.cli.output import printable
from duebridge.envelope import Envelope, HeaderValue, Properties, Target, target_of
from duebridge.errors import EnvelopeError, shown

FROM_STDIN = "-"  # in place of a body or an id
CHUNK_BYTES = 256 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024
ID_LINES = 250
ENDED = frozenset({"delivered", "shunted", "cancelled", "dropped", "replaced"})
_TEXT = 'expected text or {"base64": "..."}'
_DURATION = 'expected a duration such as "15m"'
# What a field has to be, where msgspec would name Python types.
_EXPECTED = {
    "body": f"{_TEXT}; use json for a JSON value",
    "key": _TEXT,
    "delay": _DURATION,
    "remember": _DURATION,
}


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that are not text."""

    base64: str


Value: TypeAlias = str | int | bool | Base64 | None


class EnvelopeLine(Properties, frozen=True, forbid_unknown_fields=True):
    """An envelope as a line has it: properties are fields like the others."""

    body: str | Base64 | UnsetType | None = UNSET
    json: msgspec.Raw | UnsetType = UNSET
    delay: str | None = None
    at: str | int | None = None
    id: str | None = None
    expires: str | int | None = None
    key: str | Base64 | None = None
    headers: dict[str, Value] | list[tuple[str, Value]] = msgspec.field(default_factory=dict)
    max_attempts: int | None = None
    remember: str | None = None
    target: Target | None = None


class IdLine(msgspec.Struct, frozen=True):
    """An id as `ls` and `events` print it; the cursor line at the end of a page has none."""

    id: str = ""
    route: str = ""
    kind: str = ""
    at_ms: int = 0


class IdFilter(NamedTuple):
    """Selects lines of a route; with an instant, only of envelopes that ended then or later."""

    route: str
    ended_since_ms: int | None

    def has(self, line: IdLine) -> bool:
        """Whether the line is selected; one without a route is."""
        if not line.id or line.route not in ("", self.route):
            return False
        since_ms = self.ended_since_ms
        return since_ms is None or (line.kind in ENDED and line.at_ms >= since_ms)


class Line(NamedTuple):
    """A line and its number, from 1."""

    number: int
    text: bytes


_envelope_decoder = msgspec.json.Decoder(EnvelopeLine, dec_hook=target_of)
_id_decoder = msgspec.json.Decoder(IdLine)


def opened_stdin() -> BufferedReader:
    """Return standard input as bytes; raises `EnvelopeError` if the process has none."""
    if sys.stdin is None:  # its descriptor may be a socket by now
        raise EnvelopeError("standard input: expected it open; got it closed")
    return open(sys.stdin.fileno(), "rb", closefd=False)


def read_batches(stream: BufferedReader, size: int) -> Iterator[list[Line]]:
    """Yield lines as soon as they arrive, at most `size` at once; memory stays bounded."""
    number, rest = 1, b""
    while chunk := stream.read1(CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        rest = rest[: MAX_LINE_BYTES + 1]  # too long already: the rest of it may go
        lines = [Line(at, text) for at, text in enumerate(whole, number)]
        yield from (lines[at : at + size] for at in range(0, len(lines), size))
        number += len(lines)
    if rest:
        yield [Line(number, rest)]


def read_ids(wanted: IdFilter) -> Iterator[str]:
    """Yield the ids of the selected lines as they arrive.

    Raises `EnvelopeError` at a line that is not such an object; earlier ids were yielded.
    """
    with opened_stdin() as stream:
        for lines in read_batches(stream, ID_LINES):
            for line in lines:
                if wanted.has(found := _id_line(line)):
                    yield found.id


def parse_line(text: bytes) -> Envelope:
    """Return the envelope of a line; raises `EnvelopeError`, which says what was expected."""
    if len(text) > MAX_LINE_BYTES:
        raise EnvelopeError(f"expected at most {MAX_LINE_BYTES} bytes")
    try:
        return _envelope(_envelope_decoder.decode(text))
    except RecursionError as error:
        raise EnvelopeError("expected a JSON object that is not nested so deep") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # the latter: bytes of an object key
        fault = _field_fault(text) or f"expected an envelope as a JSON object: {error}"
        raise EnvelopeError(fault) from error


def is_empty(text: bytes) -> bool:
    """Whether a line is blank or a comment."""
    return text.lstrip()[:1] in (b"", b"#")


def json_value(value: HeaderValue) -> Value | dict[str, Any]:
    """Return a value as a line has it: bytes as text if they are UTF-8, else as base64.

    A value that only AMQP has is shown with the tag of its type; lines have none of those.
    """
    if isinstance(value, Ext):
        return shown_field(value)
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Base64(base64.b64encode(value).decode())


class RejectFile:
    """Keeps refused lines as they came, each below a comment with its reason."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file

    def keep(self, line: Line, why: str) -> None:
        """Write a line and its reason; of a line that is too long, only the reason."""
        if self._file is None:
            return
        self._file.write(f"# line {line.number}: {printable(why)}\n".encode())
        if len(line.text) <= MAX_LINE_BYTES:
            self._file.write(line.text + b"\n")
        self._file.flush()


@contextmanager
def opened_rejects(path: Path | None) -> Iterator[RejectFile]:
    """Give a new file at `path`, or one that keeps nothing; raises `OSError` first of all."""
    if path is None:
        yield RejectFile(None)
        return
    with path.open("wb") as file:
        yield RejectFile(file)


def _id_line(line: Line) -> IdLine:
    if not line.text.strip():
        return IdLine()
    try:
        if len(line.text) > MAX_LINE_BYTES:
            raise msgspec.DecodeError(f"more than {MAX_LINE_BYTES} bytes")
        return _id_decoder.decode(line.text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        expected = 'expected an object with an id, such as {"id": "order-42"}'
        raise EnvelopeError(f"line {line.number}: {expected}: {error}") from error


def _field_fault(text: bytes) -> str:
    """Return which field of a JSON object has the wrong type, for the fields people get wrong."""
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # the last: nested too deep
        return ""
    for name, expected in _EXPECTED.items() if isinstance(given, dict) else ():
        value = given.get(name)
        if not (value is None or isinstance(value, str) or _is_base64(name, value)):
            return f"{name}: {expected}; got {shown(value)}"
    return ""


def _is_base64(name: str, value: object) -> bool:
    return name in ("body", "key") and isinstance(value, dict) and value.keys() == {"base64"}


def _envelope(line: EnvelopeLine) -> Envelope:
    given = msgspec.structs.asdict(line)
    pairs = line.headers.items() if isinstance(line.headers, dict) else line.headers
    given["key"] = _bytes(line.key)
    given["headers"] = [(name, _header_value(value)) for name, value in pairs]
    given["at"] = None if line.at is None else parse_at(line.at, "at")
    given["expires"] = None if line.expires is None else parse_expires(line.expires)
    del given["body"], given["json"]
    return Envelope.new(_body(line, given), **given)


def _body(line: EnvelopeLine, given: dict[str, Any]) -> bytes | None:
    """Return the body; a JSON value makes application/json the default content type."""
    if (line.body is UNSET) == (line.json is UNSET):
        got = "neither" if line.body is UNSET else "both"
        raise EnvelopeError(f"body: expected exactly one of body and json; got {got}")
    if not isinstance(line.json, UnsetType):
        given["content_type"] = line.content_type or "application/json"
        return bytes(line.json)
    return None if isinstance(line.body, UnsetType) else _bytes(line.body)


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
