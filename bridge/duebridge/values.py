"""Checks the values that a caller gives; each raises `EnvelopeError` with the value's name."""

from math import isfinite

import msgspec

from duebridge.errors import EnvelopeError, shown


def checked_text(name: str, value: object, least: int, most: int) -> str:
    """Return printable text of so many bytes of UTF-8."""
    if not isinstance(value, str):
        raise EnvelopeError(f"{name}: expected text; got {type(value).__name__}")
    text = sized(name, utf8(name, value), least, most)
    if not text.isprintable():
        raise EnvelopeError(f"{name}: expected printable characters only; got {shown(text)}")
    return text


def utf8(name: str, value: str) -> str:
    """Return text that UTF-8 can carry, as a str and no subclass."""
    if type(value) is str and value.isascii():
        return value
    try:
        return value.encode().decode()
    except UnicodeEncodeError as error:
        got = shown(value)
        raise EnvelopeError(f"{name}: expected text that UTF-8 can carry; got {got}") from error


def is_utf8(value: str) -> bool:
    """Whether UTF-8 can carry a text: it has no lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def sized(name: str, text: str, least: int, most: int) -> str:
    """Return text of so many bytes of UTF-8."""
    if not least <= (size := len(text.encode())) <= most:
        raise EnvelopeError(f"{name}: expected {least} to {most} bytes of UTF-8; got {size}")
    return text


def whole_or_none(name: str, value: object, least: int, most: int) -> int | None:
    """Return a whole number of a range, or None."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise EnvelopeError(
            f"{name}: expected a whole number, {least} to {most}; got {shown(value)}"
        )
    return value


def encode_json(value: object) -> bytes:
    """Return a value as JSON; raises `EnvelopeError` for one that JSON cannot carry."""
    try:
        found = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EnvelopeError(f"json: expected a value that JSON carries: {error}") from error
    if b"null" in found and (odd := _not_finite(msgspec.to_builtins(value))) is not None:
        raise EnvelopeError(f"json: expected a value that JSON carries; got {odd} in it")
    return found


def _not_finite(value: object) -> float | None:
    """Return the first float that JSON cannot carry: the encoder writes null for it."""
    if isinstance(value, float):
        return None if isfinite(value) else value
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return None
    return next((odd for each in value if (odd := _not_finite(each)) is not None), None)
