"""Envelopes as JSON, one a line, as `duebridge send --jsonl` and HTTP take them.

An envelope has the fields of the Python API. Its body is text, {"base64": "..."}, or null for a
Kafka tombstone; in its place are `body_base64` or `json`, any JSON value. Keys and header
values are written like bodies; headers are an object or a list of pairs. A line that begins with #
is a comment.
"""

import base64
import binascii
import re
from collections.abc import Collection
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.msgpack import Ext

from duebridge.amqp_fields import shown_field
from duebridge.envelope import (
    JSON,
    Envelope,
    HeaderValue,
    Properties,
    Target,
    target_of,
    unknown_field,
)
from duebridge.errors import MOST_SHOWN, EnvelopeError, shown
from duebridge.instants import parse_at, parse_expires

MAX_LINE_BYTES = 16 * 1024 * 1024
BODIES = ("body", "body_base64", "json")
_TEXT = 'expected text or {"base64": "..."}'
_DURATION = 'expected a duration such as "15m"'
_INSTANT = "RFC 3339 with an offset, or epoch milliseconds"
_WHOLE = "expected a whole number"
# What a field has to be, where msgspec would name Python types; the others are text.
_EXPECTED = {
    "body": f"{_TEXT}; use json for a JSON value",
    "key": _TEXT,
    "delay": _DURATION,
    "remember": _DURATION,
    "at": f"expected {_INSTANT}",
    "expires": f"{_DURATION}, {_INSTANT}",
    "headers": (
        "expected an object or a list of pairs, whose values are text, whole numbers, true, false,"
        ' null or {"base64": "..."}'
    ),
    "max_attempts": _WHOLE,
    "priority": _WHOLE,
    "timestamp": _WHOLE,
    "target": "expected an object with broker and its other fields, all text",
}
_PLACE = re.compile(r" - at `\$\.(\w+)")  # in an error of msgspec: the field


class Base64(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that are not text."""

    base64: str


Value: TypeAlias = str | int | bool | Base64 | None


class EnvelopeLine(Properties, frozen=True, forbid_unknown_fields=True):
    """An envelope as a line has it: properties are fields like the others."""

    body: str | Base64 | UnsetType | None = UNSET
    body_base64: str | UnsetType = UNSET
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


_envelope_decoder = msgspec.json.Decoder(EnvelopeLine, dec_hook=target_of)


def parse_line(text: bytes, usual_id: str | None = None) -> Envelope:
    """Return the envelope of a line; raises `EnvelopeError`, which says what was expected.

    A line without an id gets `usual_id`, or a random one.
    """
    if len(text) > MAX_LINE_BYTES:
        raise EnvelopeError(f"expected at most {MAX_LINE_BYTES} bytes")
    try:
        return _envelope(_envelope_decoder.decode(text), usual_id)
    except RecursionError as error:
        raise EnvelopeError("expected a JSON object that is not nested so deep") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # the latter: bytes of an object key
        known = EnvelopeLine.__struct_fields__
        fault = field_fault(text, error, known) or f"expected an envelope as a JSON object: {error}"
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


def field_fault(text: bytes, error: Exception, known: Collection[str]) -> str:
    """Return what is wrong with a JSON object that was not decoded because of `error`.

    That is an unknown field, or what another one has to be and is; "" of all else.
    """
    given = _members(text)
    if unknown := unknown_field(given, known):
        return unknown
    place = _PLACE.search(str(error))
    if place is None or place[1] not in given:
        return ""
    expected = _EXPECTED.get(place[1], "expected text")
    return f"{place[1]}: {expected}; got {_written(given[place[1]])}"


def _members(text: bytes) -> dict[str, msgspec.Raw]:
    """Return the members of a JSON object as they stand; none if the text is something else."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # the last: nested too deep
        return {}


def _written(value: msgspec.Raw) -> str:
    """Return JSON as it stands, for a message: not too long, and fit for a terminal."""
    text = bytes(value).decode(errors="replace")
    if len(text) > MOST_SHOWN or not text.isprintable():
        return shown(text)
    return text


def _envelope(line: EnvelopeLine, usual_id: str | None) -> Envelope:
    fields = zip(EnvelopeLine.__struct_fields__, msgspec.structs.astuple(line), strict=True)
    given = {name: value for name, value in fields if value is not None}
    given.setdefault("id", usual_id)
    given["headers"] = _headers(line)
    if line.key is not None:
        given["key"] = _bytes(line.key)
    if line.at is not None:
        given["at"] = parse_at(line.at, "at")
    if line.expires is not None:
        given["expires"] = parse_expires(line.expires)
    for name in BODIES:
        given.pop(name, None)
    return Envelope.new(_body(line, given), **given)


def _headers(line: EnvelopeLine) -> list[tuple[str, HeaderValue]]:
    pairs = line.headers.items() if isinstance(line.headers, dict) else line.headers
    return [
        (name, _decoded(value.base64) if isinstance(value, Base64) else value)
        for name, value in pairs
    ]


def _body(line: EnvelopeLine, given: dict[str, Any]) -> bytes | None:
    """Return the body; a JSON value makes application/json the default content type."""
    found = [name for name in BODIES if getattr(line, name) is not UNSET]
    if len(found) != 1:
        got = " and ".join(found) or "none"
        raise EnvelopeError(f"body: expected exactly one of {', '.join(BODIES)}; got {got}")
    if not isinstance(line.json, UnsetType):
        given["content_type"] = line.content_type or JSON
        raw = bytes(line.json)
        raw.decode()  # the decoder checks no text of a raw value
        return raw
    if not isinstance(line.body_base64, UnsetType):
        return _decoded(line.body_base64, "body_base64")
    return None if isinstance(line.body, UnsetType) else _bytes(line.body)


def _bytes(value: str | Base64 | None) -> bytes | None:
    if isinstance(value, Base64):
        return _decoded(value.base64)
    return None if value is None else value.encode()


def _decoded(value: str, name: str = "base64") -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EnvelopeError(f"{name}: expected base64 with its padding: {error}") from None
