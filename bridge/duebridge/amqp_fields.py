"""AMQP field values in headers, and their JSON and byte forms.

A value that no other `HeaderValue` can carry to the byte (an int of 16 bits, a float, a table) is
an `Ext` of code `AMQP_FIELD`: the tag of its type, then its payload, as in an AMQP 0-9-1 table.
"""

import base64
import math
from decimal import Decimal
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any

import msgspec
from msgspec.msgpack import Ext

AMQP_FIELD = 1  # the code of the Ext
MOST_DEPTH = 50  # of tables in tables; deeper ones are shown as base64
_FIXED = {
    "b": Struct(">b"),
    "B": Struct(">B"),
    "s": Struct(">h"),
    "u": Struct(">H"),
    "I": Struct(">i"),
    "i": Struct(">I"),
    "l": Struct(">q"),
    "L": Struct(">Q"),
    "f": Struct(">f"),
    "d": Struct(">d"),
    "T": Struct(">Q"),
    "t": Struct(">?"),
}
_DECIMAL = Struct(">BI")
_SIZED = frozenset("SxFA")
_SIZE = Struct(">I")
FIXED_SIZES = {tag: layout.size for tag, layout in _FIXED.items()} | {"D": 5, "V": 0}
INTEGERS = frozenset("bBsuIilL")
TIMESTAMP = "T"


def field(tag: str, payload: bytes) -> Ext:
    """Return the header value of a field."""
    return Ext(AMQP_FIELD, tag.encode() + payload)


def field_tag(value: Ext) -> str:
    """Return the tag of its type: `l` of an int of 64 bits, `F` of a table."""
    return bytes(value.data)[:1].decode("latin-1")


def field_value(value: Ext) -> Any:
    """Decode a field to a JSON value, bytes as base64; raises `ValueError` for a damaged one.

    A timestamp is seconds, a decimal is text.
    """
    data = bytes(value.data)
    try:
        found, end = _value(data, 0, 0)
    except (StructError, IndexError) as error:
        raise ValueError(f"an AMQP field of {len(data)} bytes: {error}") from error
    if end != len(data):
        raise ValueError(f"an AMQP field of {len(data)} bytes: expected {end}")
    return found


def shown_field(value: Ext) -> dict[str, Any]:
    """Return a field's value with its AMQP type tag, as commands print it."""
    try:
        return {"amqp": field_tag(value), "value": field_value(value)}
    except ValueError:
        return {"amqp": field_tag(value), "base64": _base64(bytes(value.data)[1:])}


def field_bytes(value: Ext) -> bytes:
    """Encode a field for a broker without types: text as it is, anything else as JSON."""
    if field_tag(value) in "Sx":
        return bytes(value.data)[5:]
    shown = shown_field(value)
    return msgspec.json.encode(shown.get("value", shown))


def _value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """Return the value of the field at a place, and where it ends."""
    tag = chr(data[at])
    at += 1
    if tag in _SIZED:
        return _sized(tag, data, at, depth)
    if tag == "V":
        return None, at
    if tag == "D":
        scale, digits = _DECIMAL.unpack_from(data, at)
        return str(Decimal(digits).scaleb(-scale)), at + _DECIMAL.size
    layout = _FIXED.get(tag)
    if layout is None:
        raise ValueError(f"an AMQP field of the unknown type {tag!r}")
    (found,) = layout.unpack_from(data, at)
    if isinstance(found, float) and not math.isfinite(found):
        raise ValueError(f"an AMQP field that is no number: {found}; RabbitMQ takes none")
    return found, at + layout.size


def _sized(tag: str, data: bytes, at: int, depth: int) -> tuple[Any, int]:
    start = at + _SIZE.size
    end = start + _SIZE.unpack_from(data, at)[0]
    inner = data[start:end]
    if len(inner) != end - start:
        raise ValueError("an AMQP field that ends too soon")
    if tag in "Sx" or depth >= MOST_DEPTH:
        return _text(inner), end
    return (_table(inner, depth + 1) if tag == "F" else _array(inner, depth + 1)), end


def _table(data: bytes, depth: int) -> dict[str, Any]:
    found, at = {}, 0
    while at < len(data):
        start = at + 1
        at = start + data[at]
        name = data[start:at].decode(errors="replace")
        found[name], at = _value(data, at, depth)
    return found


def _array(data: bytes, depth: int) -> list[Any]:
    found, at = [], 0
    while at < len(data):
        each, at = _value(data, at, depth)
        found.append(each)
    return found


def _text(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": _base64(data)}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
