"""Instants, durations and figures as people read them. Pure functions, the templates' filters."""

from datetime import timedelta

from duebridge.durations import EPOCH, MAX_MS, format_instant, two_units

KIB = 1024


def span(ms: int | float) -> str:
    """Return a duration's two largest units; below ten seconds with a tenth.

    >>> span(3_723_000), span(2_450), span(400), span(0)
    ('1h 2m', '2.5 s', '0.4 s', '0 s')
    """
    seconds = max(0, ms) / 1000
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds else "0 s"
    return " ".join(two_units(int(ms), "dhms"))


def instant(epoch_ms: int) -> str:
    """Return an instant to the second in UTC; "never" for 0, which means none.

    >>> instant(1767225600123), instant(0)
    ('2026-01-01 00:00:00', 'never')
    """
    if not epoch_ms:
        return "never"
    if not 0 < epoch_ms <= MAX_MS:
        return f"{epoch_ms} ms"
    return f"{EPOCH + timedelta(milliseconds=epoch_ms):%Y-%m-%d %H:%M:%S}"


def relative(epoch_ms: int, now_ms: int) -> str:
    """Return the time between an instant and now, as text.

    >>> relative(61_000, 1_000), relative(1_000, 61_000), relative(1_000, 1_100)
    ('in 1m', '1m ago', 'now')
    """
    distance = epoch_ms - now_ms
    if abs(distance) < 1_000:
        return "now"
    return f"in {span(distance)}" if distance > 0 else f"{span(-distance)} ago"


def count(number: int) -> str:
    """Return a whole number with its thousands apart.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{number:,}"


def rate(per_s: float | None) -> str:
    """Return a rate a second, with a tenth where it is small; a hyphen for an unknown one.

    >>> rate(0.25), rate(1234.5), rate(0), rate(0.001), rate(None)
    ('0.2', '1,234', '0', '<0.1', '-')
    """
    if per_s is None:
        return "-"
    if 0 < per_s < 0.05:
        return "<0.1"
    return f"{per_s:,.1f}" if 0 < per_s < 10 else f"{per_s:,.0f}"


def size(number: int | None) -> str:
    """Return a number of bytes in binary units; "none" for a body that is not there.

    >>> size(12), size(2048), size(3 * 1024 * 1024), size(None)
    ('12 B', '2.0 KiB', '3.0 MiB', 'none')
    """
    if number is None:
        return "none"
    if number < KIB:
        return f"{number} B"
    kib = number / KIB
    return f"{kib:.1f} KiB" if kib < KIB else f"{kib / KIB:.1f} MiB"


def plural(number: int, one: str, many: str = "") -> str:
    """Return a count and its noun.

    >>> plural(1, "worker"), plural(2, "worker"), plural(2, "entry", "entries")
    ('1 worker', '2 workers', '2 entries')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def spoken(word: str) -> str:
    """Return a word of ours, such as a reason, as people write it.

    >>> spoken("attempts_exhausted")
    'attempts exhausted'
    """
    return word.replace("_", " ")


FILTERS = {each.__name__: each for each in (span, instant, relative, count, rate, size, spoken)}
FILTERS["exact"] = format_instant
