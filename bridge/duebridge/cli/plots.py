"""Plots and figures of a fixed width, for terminals of 80 columns."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from duebridge.durations import two_units

WIDTH = 80  # columns that everything here fits
LABEL = {"hour": "%H:%M", "day": "%H:%M", "week": "%a %H:%M"}
_LEVELS = " ▁▂▃▄▅▆▇█"
_ASCII_LEVELS = " ..::--=#"
_UNITS = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


class PlotCharacters(NamedTuple):
    """The characters of plots; those of ASCII where the terminal's encoding has no others."""

    levels: str = _LEVELS
    pending: str = "█"
    retry: str = "░"
    more: str = "…"


ASCII = PlotCharacters(_ASCII_LEVELS, "#", "+", "~")


def marks_of(encoding: str | None) -> PlotCharacters:
    """Return the marks that an encoding has."""
    try:
        "".join(PlotCharacters()).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return PlotCharacters()


class Bar(NamedTuple):
    """One line of a histogram: when it begins, and what it counts."""

    from_ms: int
    pending: int
    retry: int


def histogram_lines(
    bars: Sequence[Bar], horizon: str, marks: PlotCharacters, width: int = WIDTH
) -> list[str]:
    """Return a line for each bar, in at most `width` columns: the instant, the counts, the bar.

    >>> for line in histogram_lines([Bar(0, 30, 0), Bar(60_000, 5, 10)], "hour", ASCII, 40):
    ...     print(line)
    00:00       30      0  #################
    00:01        5     10  ###++++++
    """
    most = max((each.pending + each.retry for each in bars), default=0)
    lines = []
    for each in bars:
        instant = datetime.fromtimestamp(each.from_ms / 1000, UTC)
        label = instant.strftime(LABEL[horizon])
        head = f"{label}  {compact(each.pending):>7}  {compact(each.retry):>5}  "
        lines.append((head + _bar(each, most, marks, width - len(head))).rstrip())
    return lines


def _bar(bar: Bar, most: int, marks: PlotCharacters, width: int) -> str:
    both = _scaled(bar.pending + bar.retry, most, width)
    retry = min(both, _scaled(bar.retry, most, width))
    if retry == both and bar.pending and both > 1:
        retry -= 1  # what is there is seen
    return marks.pending * (both - retry) + marks.retry * retry


def _scaled(count: int, most: int, width: int) -> int:
    return -(-count * width // most) if count else 0  # rounded up: what is there is seen


def sparkline(counts: Sequence[int], marks: PlotCharacters) -> str:
    """Return a character for each count, none is a space, the most is the highest.

    >>> sparkline([0, 1, 4, 8], PlotCharacters())
    ' ▁▄█'
    """
    most, top = max(counts, default=0), len(marks.levels) - 1
    return "".join(marks.levels[_scaled(each, most, top)] for each in counts)


def compact(number: float) -> str:
    """Return a number of at most 5 characters below 10^13.

    >>> [compact(each) for each in (0, 7, 0.26, 9999, 10_000, 123_456, 1_250_000, 99_999_999)]
    ['0', '7', '0.3', '9999', '10k', '123k', '1.2M', '100M']
    """
    if number != int(number) and number < 100:
        return f"{number:.1f}" if number >= 0.05 else "<0.1"
    if number < 10_000:
        return f"{number:.0f}"
    unit, letter = next(each for each in _UNITS if number >= each[0] * 0.9999)
    return (
        f"{number / unit:.1f}{letter}" if number < 9.95 * unit else f"{number / unit:.0f}{letter}"
    )


def age(ms: int) -> str:
    """Return a time of two units at most, `-` for none.

    >>> [age(each) for each in (0, 900, 65_000, 3_600_000, 200_000_000)]
    ['-', '<1s', '1m5s', '1h', '2d7h']
    """
    if ms <= 0:
        return "-"
    return "".join(two_units(ms)) or "<1s"


def cut(text: str, width: int, marks: PlotCharacters) -> str:
    """Return text of at most `width` characters."""
    return text if len(text) <= width else f"{text[: width - 1]}{marks.more}"
