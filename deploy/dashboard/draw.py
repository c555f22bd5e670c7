"""A dashboard as one HTML page, drawn from what Prometheus answered: where there is no Grafana."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from math import ceil, floor, isfinite, log10
from pathlib import Path
from typing import NamedTuple

from deploy.dashboard.panels import Panel

UNIT_PX = 37  # of Grafana's grid: a row of style.css, and its gap
LEFT, RIGHT, TOP, BOTTOM = 52, 44, 8, 18
COLORS = (
    "#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#f2495c", "#b877d9", "#8ab8ff", "#ffa6b0",
    "#96d98d", "#fade2a",
)  # fmt: skip
STATS = {"green": "#299c46", "orange": "#d9730d", "red": "#c4162a", "blue": "#1f60c4"}
STYLE = (Path(__file__).parent / "style.css").read_text()


class Line(NamedTuple):
    """One series: points of seconds and value; on the right where its unit is another."""

    name: str
    points: Sequence[tuple[float, float]]
    unit: str
    is_right: bool


def page(title: str, drawn: Iterable[str]) -> str:
    """Return the whole page."""
    return (
        f'<!doctype html><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style><h1>{title}</h1><main>{''.join(drawn)}</main>"
    )


def row(panel: Panel) -> str:
    """Return a heading."""
    return _section(panel, "row", "")


def stat(panel: Panel, value: float | None) -> str:
    """Return one number on its color."""
    if value is None or not isfinite(value):
        return _section(panel, "stat", "<b>No data</b>", "#3d414a")
    steps = panel.defaults["thresholds"]["steps"]
    color = [step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]
    named = [each["options"].get(f"{value:g}") for each in panel.defaults["mappings"]]
    text = next((each["text"] for each in named if each), say(value, panel.defaults["unit"]))
    return _section(panel, "stat", f"<b>{escape(text)}</b>", STATS[color])


def lines(panel: Panel, found: Sequence[Line], start: float, end: float) -> str:
    """Return a plot and its legend."""
    width, height = panel.place["w"] * 65 - 16, panel.place["h"] * UNIT_PX - 34
    left = _Scale([line for line in found if not line.is_right], panel.is_logarithmic, height)
    right = _Scale([line for line in found if line.is_right], False, height)
    parts = [*_grid(left, panel.defaults["unit"], width), *_clock(start, end, width, height)]
    parts += [
        f'<text x="{width - RIGHT + 5}" y="{right.y(tick) + 4:.1f}">{say(tick, unit)}</text>'
        for unit in {line.unit for line in found if line.is_right}
        for tick in right.ticks
    ]
    for place, line in enumerate(found):
        color, scale = COLORS[place % len(COLORS)], right if line.is_right else left
        span = (width - LEFT - RIGHT) / (end - start)
        path = _path([(LEFT + (at - start) * span, scale.y(value)) for at, value in line.points])
        dash = ' stroke-dasharray="5 4"' if line.is_right else ""
        parts.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.4"{dash}/>')
    keys = "".join(
        f'<span><i style="background:{COLORS[place % len(COLORS)]}"></i>{escape(line.name)}</span>'
        for place, line in enumerate(found)
    )
    svg = f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none">{"".join(parts)}</svg>'
    return _section(panel, "series", f"{svg}<p>{keys}</p>")


def legend(pattern: str, labels: dict[str, str]) -> str:
    """Return a legend with its labels put in."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), pattern)


def unit_of(panel: Panel, name: str) -> tuple[str, bool]:
    """Return a series' unit, and whether it has an axis of its own on the right."""
    for each in panel.overrides:
        if re.fullmatch(each["matcher"]["options"], name):
            said = {one["id"]: one["value"] for one in each["properties"]}
            return said["unit"], said["custom.axisPlacement"] == "right"
    return panel.defaults["unit"], False


def say(value: float, unit: str) -> str:
    """Return a number as Grafana says it.

    >>> say(0.0042, "s"), say(150, "s"), say(48_300, "short"), say(0.31, "percentunit")
    ('4.2 ms', '2.5 min', '48.3k', '31%')
    """
    if unit == "s" and value:
        for least, size, name in (
            (120, 60, "min"),
            (1, 1, "s"),
            (1e-3, 1e-3, "ms"),
            (0, 1e-6, "µs"),
        ):
            if abs(value) >= least:
                return f"{value / size:.3g} {name}"
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    short = f"{value / 1000:.3g}k" if abs(value) >= 1000 else f"{value:.3g}"
    return short + {"ops": "/s", "s": " s"}.get(unit, "")


class _Scale:
    """From 0 to a round number above the most, or over powers of ten."""

    def __init__(self, found: Sequence[Line], is_logarithmic: bool, height: float) -> None:
        values = [value for line in found for _, value in line.points]
        self._height, self._is_logarithmic = height, is_logarithmic
        positive = [value for value in values if value > 0]
        if is_logarithmic and positive:
            low, high = floor(log10(min(positive))), ceil(log10(max(positive)) + 1e-9)
            self.ticks = [10.0**power for power in range(low, max(high, low + 1) + 1)]
        else:
            step = _round_up(max(values, default=0) / 4 or 0.25)
            self.ticks = [step * number for number in range(5)]

    def y(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        if self._is_logarithmic:
            low, high, value = log10(low or 1), log10(high), log10(max(value, low or 1e-9))
        share = (value - low) / (high - low)
        return TOP + (self._height - TOP - BOTTOM) * (1 - share)


def _round_up(least: float) -> float:
    power = 10.0 ** floor(log10(least))
    return float(next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= least * 0.999))


def _grid(scale: _Scale, unit: str, width: float) -> Iterable[str]:
    for tick in scale.ticks:
        y = scale.y(tick)
        yield f'<line x1="{LEFT}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#24262d"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{say(tick, unit)}</text>'


def _clock(start: float, end: float, width: float, height: float) -> Iterable[str]:
    """Yield the time since the picture begins, in minutes and seconds."""
    for number in range(6):
        x = LEFT + (width - LEFT - RIGHT) * number / 5
        minutes, seconds = divmod(round((end - start) * number / 5), 60)
        text = f"{minutes}:{seconds:02}"
        yield f'<text x="{x:.1f}" y="{height - 3}" text-anchor="middle">{text}</text>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(
        f"{'L' if place else 'M'}{x:.1f} {y:.1f}" for place, (x, y) in enumerate(points)
    )


def _section(panel: Panel, kind: str, inner: str, color: str = "") -> str:
    at = panel.place
    style = (
        f"grid-column:{at['x'] + 1}/span {at['w']};grid-row:{at['y'] + 1}/span {at['h']};"
        f"{f'background:{color}' if color else ''}"
    )
    return (
        f'<section class="{kind}" style="{style}"><h2>{escape(panel.title)}</h2>{inner}</section>'
    )
