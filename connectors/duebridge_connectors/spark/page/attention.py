"""Remarks on the figures for an operator, worst first, with a remedy or a page to read."""

from typing import NamedTuple

from duebridge_connectors.spark.page.figures import ReportFigures, format_count, format_duration

LATE_MS = 5_000  # of a day's p99
BUSY_TIMES = 3  # of the most delivered in an hour


class Remark(NamedTuple):
    """One line of the page; `level` is bad, warn or good."""

    level: str
    text: str
    remedy: str = ""


def remarks(found: ReportFigures) -> list[Remark]:
    """Return the remarks on each route, or one that all is well."""
    lines: list[Remark] = []
    for route in found.routes:
        mine = found.of(route)
        lines += _gaps(mine, route) + _dead(mine, route) + _copies(mine, route)
        lines += _late(mine, route) + _rush(mine, route)
    worst_first = sorted(lines, key=lambda remark: remark.level != "bad")
    calm = "No dead letters, no gaps, no late day, and no rush ahead."
    return worst_first or [Remark("good", calm)]


def _gaps(found: ReportFigures, route: str) -> list[Remark]:
    if not found.lost_entries:
        return []
    lost = format_count(found.lost_entries)
    text = f"{route}: {lost} entries of the journal were cut before they were read."
    return [Remark("bad", text, "Run the job journal more often; the figures lack what was cut.")]


def _dead(found: ReportFigures, route: str) -> list[Remark]:
    dead = found.total("dead", "expired")
    if not dead:
        return []
    reasons = sorted({str(row["reason"]) for row in found.reasons})
    text = f"{route}: {format_count(dead)} dead: {', '.join(reasons)}."
    return [Remark("bad", text, "docs/runbooks/dead-envelopes.md")]


def _copies(found: ReportFigures, route: str) -> list[Remark]:
    copies = (found.duplicates or {}).get(route, 0)
    if not copies:
        return []
    text = f"{route}: {format_count(copies)} duplicates reached the target."
    return [Remark("warn", text, "Lawful after a fault; consumers must be idempotent by id.")]


def _late(found: ReportFigures, route: str) -> list[Remark]:
    worst = max(found.days, key=lambda row: row["lateness_p99_ms"] or 0, default=None)
    if worst is None or (worst["lateness_p99_ms"] or 0) < LATE_MS:
        return []
    text = (
        f"{route}: p99 was {format_duration(worst['lateness_p99_ms'])} late on {worst['at']:%d %b}."
    )
    return [Remark("warn", text, "docs/runbooks/late.md")]


def _rush(found: ReportFigures, route: str) -> list[Remark]:
    """Find an hour in which far more falls due than was ever delivered in one."""
    peak = max(found.ahead, key=lambda row: row["due"], default=None)
    most = max((row["delivered"] for row in found.hours), default=0)
    if peak is None or not most or peak["due"] < BUSY_TIMES * most:
        return []
    text = f"{route}: {format_count(peak['due'])} fall due in the hour of {peak['at']:%d %b %H:%M},"
    return [Remark("warn", f"{text} {peak['due'] / most:.0f} times the busiest hour so far.")]
