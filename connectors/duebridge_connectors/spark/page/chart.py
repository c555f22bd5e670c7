"""Plots as inline SVG: a plot library would add megabytes of script, or images without dark mode.

Every mark has a title, which browsers show as a tooltip. Colors are classes of style.css.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from html import escape
from math import floor, log10
from typing import NamedTuple

WIDTH, HEIGHT = 720, 196
LEFT, RIGHT, TOP, BOTTOM = 56, 8, 10, 28
LEAST_BAR = 1.5  # keeps one of a million visible


class Series(NamedTuple):
    """Values in the order of the plot's instants; None if missing."""

    name: str
    color: str  # a class of style.css
    values: Sequence[float | None]


def bars(
    instants: Sequence[datetime], series: Sequence[Series], say: Callable[[float], str]
) -> str:
    """Return stacked bars for each instant."""
    sums = [sum(one.values[at] or 0 for one in series) for at in range(len(instants))]
    scale = _Linear(max(sums, default=0))
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(instants))
    marks = []
    for at, instant in enumerate(instants):
        below = 0.0
        for one in series:
            value = one.values[at] or 0
            if value:
                bottom, top = scale.y(below), scale.y(below + value)
                tall = max(LEAST_BAR, bottom - top)
                title = f"{_moment(instant)}: {say(value)} {one.name}"
                marks.append(
                    f'<rect class="{one.color}" x="{LEFT + at * slot + slot * 0.1:.1f}"'
                    f' y="{bottom - tall:.1f}" width="{max(1, slot * 0.8):.1f}"'
                    f' height="{tall:.1f}" rx="1"><title>{escape(title)}</title></rect>'
                )
            below += value
    return _plot(instants, slot, scale, say, marks)


def lines(
    instants: Sequence[datetime], series: Sequence[Series], say: Callable[[float], str]
) -> str:
    """Return a line for each series on a logarithmic scale: a bad hour does not flatten others."""
    scale = _Logarithmic([value for one in series for value in one.values if value is not None])
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(instants))
    marks = [mark for one in series for mark in _line(instants, one, scale, slot, say)]
    return _plot(instants, slot, scale, say, marks)


def sideways(rows: Sequence[tuple[str, float]], color: str, say: Callable[[float], str]) -> str:
    """Return horizontal bars with names and numbers, longest first, as HTML."""
    most = max((value for _, value in rows), default=1) or 1
    found = "".join(
        f'<li><span class="name">{escape(name)}</span><span class="track">'
        f'<i class="{color}" style="width:{100 * value / most:.1f}%"></i></span>'
        f"<b>{escape(say(value))}</b></li>"
        for name, value in sorted(rows, key=lambda row: -row[1])
    )
    return f'<ol class="sideways">{found}</ol>'


def legend(series: Sequence[Series]) -> str:
    """Return a legend of the series that have values."""
    found = "".join(
        f'<span><i class="{one.color}"></i>{escape(one.name)}</span>'
        for one in series
        if any(one.values)
    )
    return f'<p class="legend">{found}</p>'


class _Linear:
    """A scale from 0 to a round number above the maximum."""

    def __init__(self, most: float) -> None:
        step = _round_step(most / 3)
        self.ticks = [step * number for number in range(int(most / step) + 2)]

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / self.ticks[-1])


class _Logarithmic:
    """A scale of powers of ten; values below 1 are drawn at 1."""

    def __init__(self, values: Sequence[float]) -> None:
        least, most = min(values, default=1), max(values, default=1)
        self._low = floor(log10(max(1, least)))
        self._high = max(self._low + 1, floor(log10(max(1, most))) + 1)
        self.ticks = [10.0**power for power in range(self._low, self._high + 1)]

    def y(self, value: float) -> float:
        share = (log10(max(1, value)) - self._low) / (self._high - self._low)
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - max(0, share))


def _round_step(least: float) -> float:
    if least <= 1:
        return 1
    power = 10.0 ** floor(log10(least))
    return float(next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least))


def _line(
    instants: Sequence[datetime],
    series: Series,
    scale: _Logarithmic,
    slot: float,
    say: Callable[[float], str],
) -> Iterator[str]:
    """Yield a path with gaps for missing values, and a point for each value."""
    path, is_down = [], False
    points = []
    for at, value in enumerate(series.values):
        if value is None:
            is_down = False
            continue
        x, y = LEFT + (at + 0.5) * slot, scale.y(value)
        path.append(f"{'L' if is_down else 'M'}{x:.1f} {y:.1f}")
        is_down = True
        title = escape(f"{_moment(instants[at])}: {series.name} {say(value)}")
        points.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"><title>{title}</title></circle>')
    yield f'<g class="line {series.color}"><path d="{"".join(path)}"/>{"".join(points)}</g>'


def _plot(
    instants: Sequence[datetime],
    slot: float,
    scale: _Linear | _Logarithmic,
    say: Callable[[float], str],
    marks: Sequence[str],
) -> str:
    grid = "".join(_rule(scale.y(tick), say(tick)) for tick in scale.ticks)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><g class="grid">{grid}'
        f"{''.join(_times(instants, slot))}</g>{''.join(marks)}</svg>"
    )


def _rule(y: float, text: str) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{escape(text)}</text>'
    )


def _times(instants: Sequence[datetime], slot: float) -> Iterator[str]:
    """Yield about six instants below the plot, at whole numbers of slots."""
    every = max(1, -(-len(instants) // 6))
    for at in range(0, len(instants), every):
        x = LEFT + (at + 0.5) * slot
        yield (
            f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{_label(instants, at)}</text>'
        )


def _label(instants: Sequence[datetime], at: int) -> str:
    spans_days = instants[0].date() != instants[-1].date()
    is_hourly = any(instant.hour for instant in instants)
    if spans_days and is_hourly:
        return f"{instants[at]:%d %b %H:%M}"
    return f"{instants[at]:%H:%M}" if is_hourly else f"{instants[at]:%d %b}"


def _moment(instant: datetime) -> str:
    return f"{instant:%d %b %H:%M}" if instant.hour else f"{instant:%d %b}"
