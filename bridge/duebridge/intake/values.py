"""Reads values of control headers: text, digits, and ints of any width of AMQP."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.msgpack import Ext

from duebridge.amqp_fields import INTEGERS, TIMESTAMP, field_tag, field_value
from duebridge.durations import MAX_MS, looks_like_date, parse_instant_ms
from duebridge.envelope import Instant
from duebridge.errors import EnvelopeError, shown
from duebridge.intake.refused import MessageRefused
from duebridge.values import is_utf8

MOST_DIGITS = 18
_DIGITS = re.compile(rf"-?[0-9]{{1,{MOST_DIGITS}}}")
_RFC_3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,30})?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
LIKE_MS_FROM = 10**11  # as seconds the year 5138


def whole(name: str, value: object) -> int:
    """Return a whole number of any width, or of digits; raises `MessageRefused`."""
    found = value
    if isinstance(value, str | bytes):
        found = _digits(value)
    elif isinstance(value, Ext):
        found = _int_of(value)
    if not isinstance(found, int) or isinstance(found, bool):
        raise MessageRefused(f"{name}: expected a whole number; got {_said(value)}")
    return found


def delay(name: str, value: object) -> Instant:
    """Return a delay given in ms; raises `MessageRefused`."""
    ms = whole(name, value)
    if not 0 <= ms <= MAX_MS:
        expected = "0 ms or more" if ms < 0 else f"at most {MAX_MS} ms"
        raise MessageRefused(f"{name}: expected {expected}; got {ms}")
    return Instant(ms, relative=True)


def instant(name: str, value: object) -> Instant:
    """Return an instant given in epoch ms, in RFC 3339 or as an AMQP timestamp, rounded up.

    Raises `MessageRefused`, also for what looks like seconds or a date.
    """
    given = _timestamp(value) or _date(name, value)
    try:
        return Instant(parse_instant_ms(given or whole(name, value), name), relative=False)
    except EnvelopeError as error:
        raise MessageRefused(str(error)) from None


def instant_in_seconds(name: str, value: object) -> Instant:
    """Read epoch seconds; raises `MessageRefused`, also for what looks like ms or a date."""
    seconds = whole(name, value)
    if (is_date := looks_like_date(seconds)) or seconds >= LIKE_MS_FROM:
        got = f"{seconds}, which looks like {'a date' if is_date else 'milliseconds'}"
        raise MessageRefused(f"{name}: expected epoch seconds; got {got}")
    if seconds < 0:
        raise MessageRefused(f"{name}: expected epoch seconds; got {seconds}")
    return Instant(seconds * 1000, relative=False)


def text(name: str, value: object) -> str:
    """Return text, also of an int and of nothing; raises `MessageRefused` for another value."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        if isinstance(value, bytes):
            return value.decode()
    except UnicodeDecodeError:
        raise MessageRefused(f"{name}: expected text in UTF-8; got {_said(value)}") from None
    number = _int_of(value) if isinstance(value, Ext) else value
    if isinstance(number, int) and not isinstance(number, bool):
        return str(number)
    raise MessageRefused(f"{name}: expected text; got {_said(value)}")


def is_sound(value: object) -> bool:
    """Return whether the store can keep a header's value."""
    if isinstance(value, str):
        return value.isascii() or is_utf8(value)
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return value is None or isinstance(value, bytes | bool | Ext)


def _int_of(value: Ext) -> int | None:
    return _field(value) if field_tag(value) in INTEGERS else None


def _field(value: Ext) -> int | None:
    """Return a field that is a number; None for a damaged one."""
    try:
        return int(field_value(value))
    except ValueError:
        return None


def _digits(value: str | bytes) -> int | None:
    if value.isascii() and value.isdigit() and len(value) <= MOST_DIGITS:
        return int(value)  # as almost always
    given = value.decode("latin-1") if isinstance(value, bytes) else value
    return int(given) if _DIGITS.fullmatch(given) else None


def _timestamp(value: object) -> datetime | None:
    if not isinstance(value, Ext) or field_tag(value) != TIMESTAMP:
        return None
    try:
        return datetime.fromtimestamp(_field(value) or 0, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _date(name: str, value: object) -> datetime | None:
    given = value.decode("latin-1") if isinstance(value, bytes) else value
    match = _RFC_3339.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        return None
    day, time, fraction, zone = match.groups()
    try:
        whole_second = datetime.fromisoformat(f"{day}T{time}{zone.upper()}")
    except ValueError as error:
        raise MessageRefused(
            f"{name}: expected a date of the calendar; got {given!r}: {error}"
        ) from None
    # Rounded up: a message is never early.
    digits = (fraction or ".0")[1:]
    return whole_second + timedelta(microseconds=-(-int(digits) * 10**6 // 10 ** len(digits)))


def _said(value: Any) -> str:
    """Return a value for a message: an AMQP field by its tag."""
    if not isinstance(value, Ext):
        return "nothing" if value is None else shown(value)
    tag = bytes(value.data)[:1].decode("latin-1")
    return f"a value of the AMQP type {tag!r}"
