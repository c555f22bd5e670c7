"""Parses durations and instants into integer milliseconds, and formats them.

A duration needs a unit: a bare number could mean seconds or milliseconds.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from duebridge.errors import EnvelopeError, shown

MS_PER_UNIT = {
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}  # descending: the order of units in a duration
MAX_MS = 2**47  # about 4,400 years; fits the six bytes of a stored instant
LIKE_SECONDS = range(10**9, 10**10)  # as seconds 2001 to 2286, as ms some days of 1970
OF_TODAY = range(10**12, 10**13)  # as ms 2001 to 2286; 13 digits are no date
_LIKE_DATE = re.compile(  # 20261231, also to the minute or second; as ms in 1970, 1976, 2600
    r"(19|20|21)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])"
    r"(([01][0-9]|2[0-3])[0-5][0-9]([0-5][0-9])?)?"
)
_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,30})?"
DURATION_PATTERN = "".join(f"({_NUMBER}{unit})?" for unit in MS_PER_UNIT)  # matches empty text too
_PART = re.compile(rf"({_NUMBER})(ms|[wdhms])")
_PARTS = re.compile(DURATION_PATTERN)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_EXPECTED = 'a duration such as "500ms", "2.5s", "15m", "1h30m", "3d", "2w"'


def parse_duration_ms(value: object, name: str = "delay") -> int:
    """Return whole milliseconds, rounded up, never negative.

    Raises `EnvelopeError` for a bare number, a negative or an unreadable value.

    >>> parse_duration_ms("2.5s"), parse_duration_ms("15m"), parse_duration_ms("1h30m")
    (2500, 900000, 5400000)
    >>> parse_duration_ms(timedelta(microseconds=1))
    1
    """
    if isinstance(value, timedelta):
        ms = -1 if value < timedelta() else _whole_ms(value)
    elif isinstance(value, str):
        ms = _parse_text(value, name)
    else:
        hint = " (seconds or milliseconds?)" if isinstance(value, int | float) else ""
        expected = f"{_EXPECTED}, or a timedelta"
        raise EnvelopeError(f"{name}: expected {expected}; got {shown(value)}{hint}")
    if not 0 <= ms <= MAX_MS:
        raise EnvelopeError(f"{name}: expected between 0 and {MAX_MS}ms; got {shown(value)}")
    return ms


def _whole_ms(span: timedelta) -> int:
    whole, rest = divmod(span, timedelta(milliseconds=1))
    return whole + (rest > timedelta())  # rounded up, in integers


@lru_cache(maxsize=1024)  # a program has a few delays, and many envelopes
def _parse_text(text: str, name: str) -> int:
    text = text.strip()
    if one := _PART.fullmatch(text):
        return _part_ms(*one.groups())
    if not text or not _PARTS.fullmatch(text):
        raise EnvelopeError(f"{name}: expected {_EXPECTED}; got {shown(text)}")
    return sum(_part_ms(*part.groups()) for part in _PART.finditer(text))


def _part_ms(number: str, unit: str) -> int:
    if "." not in number:
        return int(number) * MS_PER_UNIT[unit]
    whole, fraction = number.split(".")
    scaled = int(whole + fraction) * MS_PER_UNIT[unit]
    divisor: int = 10 ** len(fraction)
    return -(-scaled // divisor)  # rounded up without a float's error


def parse_instant_ms(value: object, name: str = "at", text: str | None = None) -> int:
    """Return epoch milliseconds, rounded up, of an aware datetime or of integer epoch ms.

    Raises `EnvelopeError` for a naive datetime, a float, a number that looks like seconds or like
    a date such as 20261231, or an instant before 1970. Whatever sets a due instant or an expiry
    reads it here. `text` is how a value was written, where that was text: an error quotes it.

    >>> parse_instant_ms(datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC))
    1001
    """
    if isinstance(value, datetime):
        ms = _aware_ms(value, name)
    elif isinstance(value, int) and not isinstance(value, bool):
        ms = int(value)
        if ms in LIKE_SECONDS or looks_like_date(ms):
            got = f"{ms}, which looks like {'seconds' if ms in LIKE_SECONDS else 'a date'}"
            raise EnvelopeError(f"{name}: expected epoch milliseconds; got {got}")
    else:
        expected = "an aware datetime or integer epoch milliseconds"
        raise EnvelopeError(f"{name}: expected {expected}; got {shown(value)}")
    if not 0 <= ms <= MAX_MS:
        got = shown(value if text is None else text)
        raise EnvelopeError(f"{name}: expected epoch ms between 0 and {MAX_MS}; got {got}")
    return ms


def _aware_ms(value: datetime, name: str) -> int:
    try:
        if value.utcoffset() is None:
            raise EnvelopeError(f"{name}: expected an aware datetime; got naive {shown(value)}")
        return _whole_ms(value - EPOCH)
    except (ValueError, TypeError, OverflowError) as error:  # pandas' NaT is a datetime without any
        raise EnvelopeError(f"{name}: expected an aware datetime; got {shown(value)}") from error


def looks_like_date(number: int) -> bool:
    """Whether a number was hardly meant as one: 20261231, or with a time to the minute or second.

    >>> looks_like_date(20261231), looks_like_date(202612310900), looks_like_date(20261331)
    (True, True, False)
    """
    if number in OF_TODAY:  # nearly every instant, which needs no closer look
        return False
    return 0 <= number <= MAX_MS and _LIKE_DATE.fullmatch(str(number)) is not None


def two_units(ms: int, units: str = "wdhms") -> list[str]:
    """Return a duration by its largest unit and the next one; what is below them is cut off.

    >>> two_units(3_725_000), two_units(3_605_000), two_units(900)
    (['1h', '2m'], ['1h'], [])
    """
    parts: list[str] = []
    for unit in units:
        count, ms = divmod(ms, MS_PER_UNIT[unit])
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return [part for part in parts if part]


def format_ms(ms: int) -> str:
    """Return the shortest exact duration text.

    >>> format_ms(900000), format_ms(2500), format_ms(0)
    ('15m', '2500ms', '0ms')
    """
    for unit in ("d", "h", "m", "s"):  # no weeks: keeps existing output stable
        if ms and ms % MS_PER_UNIT[unit] == 0:
            return f"{ms // MS_PER_UNIT[unit]}{unit}"
    return f"{ms}ms"


def format_instant(epoch_ms: int) -> str:
    """Return an instant as ISO 8601 in UTC; a dash for 0, which means none.

    >>> format_instant(1767225600123), format_instant(0)
    ('2026-01-01T00:00:00.123Z', '-')
    """
    if not epoch_ms:
        return "-"
    if not 0 < epoch_ms <= MAX_MS:  # corrupt: outside the accepted range
        return f"{epoch_ms} ms"
    at = EPOCH + timedelta(milliseconds=epoch_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
