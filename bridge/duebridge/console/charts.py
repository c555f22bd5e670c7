"""Builds the charts of pages, for the browser's program and for the table beside them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from duebridge.admin.forecast import Forecast
from duebridge.admin.histogram import DueBucket


class Chart(NamedTuple):
    """A chart, as JSON for the browser; `rows` are its figures for those who do not see it."""

    json: str
    legend: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Sequence[tuple[int, ...]]
    total: int


def due_chart(buckets: Sequence[DueBucket]) -> Chart:
    """Build the chart of the envelopes that fall due in each bucket."""
    due = [each.pending for each in buckets]
    retries = [each.retry for each in buckets]
    starts = [each.from_ms for each in buckets]
    rows = list(zip(starts, due, retries, strict=True))
    series = _stacked(due, retries)
    return _chart(starts, series, ("due", "retries"), rows)


def forecast_chart(found: Forecast) -> Chart:
    """Build the chart of due envelopes, the workers' capacity, and the resulting backlog."""
    due = [each.due for each in found.buckets]
    retries = [each.retries for each in found.buckets]
    backlog = [each.backlog or 0 for each in found.buckets]
    starts = [each.from_ms for each in found.buckets]
    series = _stacked(due, retries)
    legend = ["due", "retries"]
    if found.capacity_per_s is not None:
        seconds = [(each.to_ms - each.from_ms) / 1000 for each in found.buckets]
        room = [round(found.capacity_per_s * each) for each in seconds]
        if max(room) < 20 * max(1, *due, *retries):  # else it would flatten everything else
            series.append(_series("capacity", "capacity", room, "limit"))
            legend.append("capacity")
    if any(backlog):
        series.append({**_series("backlog", "backlog", backlog, "line"), "scale": "backlog"})
        legend.append("backlog")
    rows = list(zip(starts, due, retries, backlog, strict=True))
    return _chart(starts, series, tuple(legend), rows)


def _stacked(due: list[int], retries: list[int]) -> list[dict[str, Any]]:
    both = [one + other for one, other in zip(due, retries, strict=True)]
    behind = {**_series("retries", "retries", retries, "bars"), "stacked": both}
    return [behind, _series("due", "due", due, "bars")]


def _series(label: str, tone: str, values: list[int], form: str) -> dict[str, Any]:
    return {"label": label, "tone": tone, "values": values, "as": form}


def _chart(
    starts_ms: list[int],
    series: list[dict[str, Any]],
    legend: tuple[str, ...],
    rows: Sequence[tuple[int, ...]],
) -> Chart:
    x = [each // 1000 for each in starts_ms]
    json = msgspec.json.encode({"x": x, "series": series}).decode()
    columns = ("from", "due", "retries", "backlog")[: len(rows[0]) if rows else 3]
    return Chart(json, legend, columns, rows, sum(row[1] + row[2] for row in rows))
