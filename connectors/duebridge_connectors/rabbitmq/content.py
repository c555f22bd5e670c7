"""Decodes a content header so that `encoding` writes every header and property to the byte.

A value that our own types would write as another one stays an AMQP field (`amqp_fields`). Names and
properties that are no UTF-8 get a ? for each byte that is none; of a repeated name, which RabbitMQ
itself does not look for, the first value counts.

pika's decoder raises on a timestamp beyond the year 9999 and on deeply nested arrays, which ends
the connection; it decodes a float as an int and forgets the width of ints.
"""

from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final, NamedTuple

from duebridge.amqp_fields import FIXED_SIZES, field
from duebridge.envelope import HeaderValue, Properties

FRAME: Final = Struct(">BHL").unpack_from  # type, channel, size of the payload
HEAD_BYTES: Final = 7
FRAME_BYTES: Final = 8  # with its end
BODY_SIZE: Final = Struct(">Q").unpack_from
BODY_SIZE_AT: Final = 4  # in a content header's payload

_FLAGS = Struct(">H").unpack_from
_SIZE = Struct(">I").unpack_from
_INT = Struct(">i").unpack_from
_LONG = Struct(">q").unpack_from
_TIME = Struct(">Q").unpack_from
_FLAGS_AT: Final = 12  # behind class, weight and size of the body
_HEADERS, _DELIVERY_MODE = "headers", "delivery_mode"
_OCTETS: Final = frozenset({"priority", _DELIVERY_MODE})
_TIMESTAMP: Final = "timestamp"
_BY_FLAG: Final = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
_INT_32: Final = range(-(2**31), 2**31)
UNREADABLE: Final = "x-delay"  # a header under which a damaged table is refused, not sent at once

Headers = dict[str, HeaderValue]


class ContentHeader(NamedTuple):
    """A decoded content header."""

    headers: Headers
    fields: dict[str, str | int]
    """Its other properties."""

    def properties(self) -> Properties | None:
        """Return the properties that an envelope has; None if there is none."""
        return Properties(**self.fields) if self.fields else None  # type: ignore[arg-type]


def decode(header: bytes) -> ContentHeader:
    """Return the content of a header's payload; its `delivery_mode` is left out."""
    headers: Headers = {}
    fields: dict[str, str | int] = {}
    at = _FLAGS_AT + 2
    for name in _present(_FLAGS(header, _FLAGS_AT)[0]):
        if name == _HEADERS:
            end = at + 4 + _SIZE(header, at)[0]
            headers = _headers(header[at + 4 : end])
            at = end
        elif name in _OCTETS:
            fields[name] = header[at]
            at += 1
        elif name == _TIMESTAMP:
            (fields[name],) = _TIME(header, at)
            at += 8
        else:
            end = at + 1 + header[at]
            fields[name] = text_of(header[at + 1 : end])
            at = end
    fields.pop(_DELIVERY_MODE, None)
    return ContentHeader(headers, fields)


@lru_cache(maxsize=256)
def _present(flags: int) -> tuple[str, ...]:
    return tuple(name for bit, name in enumerate(_BY_FLAG) if flags & 1 << (15 - bit))


def _headers(table: bytes) -> Headers:
    try:
        return _table(table)
    except (StructError, IndexError, ValueError):
        return {UNREADABLE: table}


def _table(data: bytes) -> Headers:
    found: Headers = {}
    at, end = 0, len(data)
    while at < end:
        start = at + 1
        at = start + data[at]
        name = _name(data[start:at])
        value, at = _value(data, at)
        found.setdefault(name, value)
    if at != end:
        raise ValueError(f"a table of {end} bytes: expected {at}")
    return found


def _value(data: bytes, at: int) -> tuple[HeaderValue, int]:
    """Return the value of the field at a place, and where it ends."""
    tag = chr(data[at])
    start = at + 1
    if tag in "SxFA":
        end = start + 4 + _SIZE(data, start)[0]
        return _sized(tag, data[start:end]), end
    end = start + FIXED_SIZES[tag] if tag in FIXED_SIZES else -1
    if end < 0:
        raise ValueError(f"a field of the unknown type {tag!r}")
    if tag == "I":
        return _INT(data, start)[0], end
    if tag == "V":
        return None, end
    if tag == "t" and data[start] in (0, 1):
        return data[start] == 1, end
    if tag == "l" and (number := _LONG(data, start)[0]) not in _INT_32:
        return number, end
    return field(tag, data[start:end]), end


def _sized(tag: str, payload: bytes) -> HeaderValue:
    if tag == "x":
        return payload[4:]
    if tag == "S":
        try:
            return payload[4:].decode()
        except UnicodeDecodeError:
            return field(tag, payload)
    return field(tag, payload)


def text_of(data: bytes) -> str:
    """Return text, with a ? for each byte that is no UTF-8 nor ASCII."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("ascii", "replace").replace("\ufffd", "?")


_name = lru_cache(maxsize=4096)(text_of)
