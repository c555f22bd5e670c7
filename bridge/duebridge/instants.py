"""Instants as people write them: RFC 3339 with an offset, or integer epoch milliseconds."""

import re
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from duebridge.durations import EPOCH, parse_duration_ms, parse_instant_ms
from duebridge.errors import EnvelopeError, shown

_EXPECTED = (
    "RFC 3339 with an offset, such as 2026-01-31T09:00:00Z or 2026-01-31T10:00:00+01:00,"
    " or epoch milliseconds"
)
_EXPECTED_IN_ZONE = "an instant such as 2026-01-31T09:00:00, or epoch milliseconds"
_BEYOND_MICROSECONDS = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")  # `fromisoformat` cuts them off
_EPOCH_MS = re.compile(r"[0-9]{1,30}")  # Python refuses to convert thousands of digits
_UNITS = ("s", "m", "h", "d", "w")  # how durations end, and instants do not


def parse_at(
    value: str | int, name: str = "--at", others: str = "", zone: tzinfo | None = None
) -> datetime:
    """Return an aware datetime, rounded up to a microsecond, so that nothing is due early.

    A text without an offset is in `zone`, and refused if there is none. Raises `EnvelopeError` as
    `parse_instant_ms` does.

    `others` are what the caller reads beside instants, for that error.

    >>> parse_at("1767225600000").isoformat()
    '2026-01-01T00:00:00+00:00'
    """
    if isinstance(value, int) or _EPOCH_MS.fullmatch(value):
        return EPOCH + timedelta(milliseconds=parse_instant_ms(int(value), name))
    try:
        at = datetime.fromisoformat(value.upper())
        at = at.replace(tzinfo=at.tzinfo or zone)
        if _BEYOND_MICROSECONDS.search(value):
            at += timedelta(microseconds=1)
    except (ValueError, OverflowError):
        at = None
    if at is None or at.tzinfo is None:
        read = _EXPECTED_IN_ZONE if zone else _EXPECTED
        expected = f"{read}, or {others}" if others else read
        raise EnvelopeError(f"{name}: expected {expected}; got {shown(value)}")
    parse_instant_ms(at, name, value)  # refuses what is out of range
    return at


class InstantOrOffset(NamedTuple):
    """An instant in epoch ms, or ms after a clock's now (before it, if negative)."""

    ms: int
    is_relative: bool = False

    def at_ms(self, now_ms: int) -> int:
        """Return the epoch ms, never below 0, by a clock that shows `now_ms`."""
        return max(0, now_ms + self.ms) if self.is_relative else self.ms


def parse_from_now(value: str, name: str) -> InstantOrOffset:
    """Return a duration from now, or an instant as `parse_at` reads it."""
    if value.endswith(_UNITS):
        return InstantOrOffset(parse_duration_ms(value, name), is_relative=True)
    return _instant(value, name, "a duration from now, such as 15m")


def parse_ago(value: str, name: str) -> InstantOrOffset:
    """Return a duration ago, or an instant as `parse_at` reads it.

    >>> parse_ago("2s", "--since").at_ms(5000)
    3000
    """
    if value.endswith(_UNITS):
        return InstantOrOffset(-parse_duration_ms(value, name), is_relative=True)
    return _instant(value, name, "a duration ago, such as 15m")


def _instant(value: str, name: str, others: str) -> InstantOrOffset:
    return InstantOrOffset(parse_instant_ms(parse_at(value, name, others), name))


def parse_expires(value: str | int) -> str | datetime:
    """Return a duration unchanged, and anything else as `parse_at` reads it."""
    if isinstance(value, str) and value.endswith(_UNITS):
        return value
    return parse_at(value, "expires", "a duration, such as 15m")
