"""The page of the report: remarks first, then plots and a table of days for each route."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from html import escape
from importlib.resources import files

from duebridge_connectors.spark.page.attention import Remark, remarks
from duebridge_connectors.spark.page.chart import Series, bars, legend, lines, sideways
from duebridge_connectors.spark.page.figures import (
    ReportFigures,
    Row,
    format_count,
    format_duration,
)
from duebridge_connectors.spark.transforms.figures import KINDS, PERCENTILES

MOST_HOURS = 8 * 24  # longer periods are shown by days
MOST_FORECAST = 7 * 24
# The browser fetches and runs nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render_page(found: ReportFigures) -> str:
    """Return a self-contained HTML page."""
    return document("duebridge report", _body(found))


def document(title: str, body: str) -> str:
    """Return a page that fetches and runs nothing; `body` is HTML."""
    style = files("duebridge_connectors.spark.page").joinpath("style.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def _body(found: ReportFigures) -> str:
    if not found.routes:
        empty = '<p class="none">The journal and the store have nothing to report yet.</p>'
        return _head(found) + empty
    sections = "".join(_section(found.of(route), route) for route in found.routes)
    links = "".join(f'<a href="#{escape(route)}">{escape(route)}</a>' for route in found.routes)
    footer = (
        "<footer>Lateness is from due to the store's ack; late hours are those of the ack. Times"
        " are UTC. Only counts, times, routes and reasons are here, no ids and no bodies.</footer>"
    )
    looks = _looks(remarks(found))
    return f"{_head(found)}{_tiles(found)}{looks}<nav>{links}</nav>{sections}{footer}"


def _head(found: ReportFigures) -> str:
    instants = [row["at"] for row in found.hours]
    span = ""
    if instants:
        end = max(instants) + timedelta(hours=1)
        span = f"{min(instants):%d %b %Y %H:%M} to {end:%d %b %Y %H:%M}"
    made = f"made {found.made_at:%d %b %Y %H:%M} UTC"
    return f"<header><h1>duebridge report</h1><p>{span}</p><p>{made}</p></header>"


def _tiles(found: ReportFigures) -> str:
    dead = found.total("dead", "expired")
    worst = max((row["lateness_p99_ms"] or 0 for row in found.days), default=0)
    copies = found.copies
    known = "not known" if copies is None else format_count(copies)
    tiles = (
        (format_count(found.total("accepted")), "accepted", ""),
        (format_count(found.total("delivered")), "delivered", ""),
        (format_duration(worst), "worst day's p99 lateness", ""),
        (format_count(found.total("retried")), "retries", ""),
        (format_count(dead), "dead", "bad" if dead else ""),
        (known, "duplicates", "warn" if copies else ""),
        (format_count(found.waiting), "waiting, cold ones too", ""),
    )
    made = "".join(
        f'<div class="{color}"><b>{value}</b><span>{name}</span></div>'
        for value, name, color in tiles
    )
    return f'<div class="tiles">{made}</div>'


def _looks(found: Sequence[Remark]) -> str:
    made = "".join(
        f'<li class="{one.level}">{escape(one.text)} <small>{escape(one.remedy)}</small></li>'
        for one in found
    )
    return f'<ul class="look">{made}</ul>'


def _section(found: ReportFigures, route: str) -> str:
    cards = [*_over_time(found), *_forecast(found), *_reasons(found)]
    made = "".join(f'<div class="card"><h3>{title}</h3>{content}</div>' for title, content in cards)
    name = escape(route)
    plots = f'<div class="grid2">{made}</div>'
    return f'<section id="{name}"><h2>{name}</h2>{plots}{_table(found)}</section>'


def _over_time(found: ReportFigures) -> list[tuple[str, str]]:
    rows, step = found.hours, timedelta(hours=1)
    if not rows:
        return []
    if len(_every(rows, step)) > MOST_HOURS:
        rows, step = found.days, timedelta(days=1)
    instants = _every(rows, step)
    by_instant = {row["at"]: row for row in rows}

    def values(*kinds: str) -> list[float | None]:
        found = [by_instant.get(instant, {}) for instant in instants]
        return [sum(row.get(kind) or 0 for kind in kinds) for row in found]

    def times(kind: str) -> list[float | None]:
        return [by_instant.get(instant, {}).get(kind) for instant in instants]

    sent = [
        Series("delivered", "calm", values("delivered")),
        Series("retried", "warn", values("retried")),
        Series("dead", "bad", values("dead", "expired")),
    ]
    late = [
        Series("p50", "calm", times("lateness_p50_ms")),
        Series("p99", "warn", times("lateness_p99_ms")),
    ]
    unit = "hour" if step < timedelta(days=1) else "day"
    return [
        (f"Throughput per {unit}", bars(instants, sent, format_count) + legend(sent)),
        ("Lateness", lines(instants, late, format_duration) + legend(late)),
    ]


def _every(rows: Sequence[Row], step: timedelta) -> list[datetime]:
    """Return all instants from the first row to the last, including those without a row."""
    if not rows:
        return []
    first, last = min(row["at"] for row in rows), max(row["at"] for row in rows)
    return [first + step * number for number in range(int((last - first) / step) + 1)]


def _forecast(found: ReportFigures) -> list[tuple[str, str]]:
    if not found.forecast:
        return []
    due = {row["at"]: row["due"] for row in found.ahead}
    instants = _every(found.ahead, timedelta(hours=1))[:MOST_FORECAST]
    series = Series("due", "pale", [due.get(instant) for instant in instants])
    overdue = found.waiting - sum(due.values())
    later = sum(due.values()) - sum(due.get(instant, 0) for instant in instants)
    said = ((overdue, "were due before and wait"), (later, "are due later"))
    notes = "; ".join(f"{format_count(count)} {what}" for count, what in said if count)
    note = f'<p class="legend">{notes}</p>' if notes else ""
    return [("Forecast: falls due per hour", bars(instants, [series], format_count) + note)]


def _reasons(found: ReportFigures) -> list[tuple[str, str]]:
    sums: dict[str, float] = {}
    for row in found.reasons:
        sums[row["reason"]] = sums.get(row["reason"], 0) + row["count"]
    return [("Dead, by reason", sideways(list(sums.items()), "bad", format_count))] if sums else []


_TIMES = (*PERCENTILES, "lateness_max_ms")


def _table(found: ReportFigures) -> str:
    if not found.days:
        return ""
    columns = [kind for kind in (*KINDS, "repeated") if found.total(kind)]
    heads = ["day", *columns, "p50", "p90", "p99", "max", "busiest minute"]
    head = "".join(f"<th>{head}</th>" for head in heads)
    days = sorted(found.days, key=lambda row: row["at"])
    rows = "".join(_table_row(row, columns) for row in days)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="card scroll" style="margin-top:12px">{table}</div>'


def _table_row(row: Row, columns: Sequence[str]) -> str:
    cells = [f"<td>{row['at']:%Y-%m-%d}</td>"]
    for name in columns:
        color = "zero" if not row[name] else "bad" if name in ("dead", "expired") else ""
        cells.append(f'<td class="{color}">{format_count(row[name])}</td>')
    for name in _TIMES:
        cells.append(f"<td>{'-' if row[name] is None else format_duration(row[name])}</td>")
    cells.append(f"<td>{format_count(row['busiest_minute'] or 0)}</td>")
    return f"<tr>{''.join(cells)}</tr>"
