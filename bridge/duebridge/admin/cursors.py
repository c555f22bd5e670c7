"""Cursors: a position as one word, which continues a list where it stopped."""

import base64
from typing import TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


def cursor_of(position: msgspec.Struct) -> str:
    """Return a position as a cursor: letters, digits, - and _."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(position)).decode().rstrip("=")


def position_of(cursor: str, kind: type[T]) -> T:
    """Return the position of a cursor; raises `ValueError` for any other text."""
    packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    try:
        return msgspec.msgpack.decode(packed, type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
