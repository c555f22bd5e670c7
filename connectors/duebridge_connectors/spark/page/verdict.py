"""The page of a verdict: what is missing, the counts, and the story of each id that is named."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

import msgspec

from duebridge_connectors.spark.page.html import document
from duebridge_connectors.spark.transforms.reconciliation import (
    BROKE,
    HOLDS,
    Reconciliation,
    RouteVerdict,
)

_LEVELS = {HOLDS: "good", BROKE: "bad"}


class StoryLine(NamedTuple):
    """One line of a story: when, in ms or None, by whose word, and what."""

    at_ms: int | None
    source: str
    text: str


class IdStory(NamedTuple):
    """All that is known of an id, and what is wrong with it; `doubtful` kinds are not proved."""

    route: str
    id: str
    kinds: Sequence[str]
    doubtful: Sequence[str]
    lines: Sequence[StoryLine]


def render_verdict(done: Reconciliation, stories: Sequence[IdStory], untold: int) -> str:
    """Return a self-contained HTML page; `untold` ids are named only in the Parquet files."""
    head = (
        f"<header><h1>duebridge verdict: {escape(done.verdict)}</h1>"
        f"<p>envelopes accepted {_period(done)}</p></header>"
    )
    body = f"{head}{_remarks(done)}{_counts(done.routes)}{_stories(stories, untold)}{_FOOTER}"
    return document("duebridge verdict", body)


_FOOTER = (
    "<footer>Times are UTC. Those of the journal and the store are the store's clock, those of"
    " messages the broker's or the worker's, those of receipts the caller's. Ids are here, but no"
    " body and no header of yours. docs/spark/reconcile.md explains the words.</footer>"
)


def _period(done: Reconciliation) -> str:
    since = f"from {shown_instant(done.since_ms)} " if done.since_ms else ""
    return f"{since}to {shown_instant(done.until_ms)}"


def _remarks(done: Reconciliation) -> str:
    level = _LEVELS.get(done.verdict, "warn")
    lines = [(level, str(done).partition(" Missing: ")[0])]
    lines += [("warn", f"Missing: {each}.") for each in done.missing]
    made = "".join(f'<li class="{level}">{escape(text)}</li>' for level, text in lines)
    return f'<ul class="look">{made}</ul>'


def _counts(routes: Sequence[RouteVerdict]) -> str:
    rows = [msgspec.structs.asdict(route) for route in routes]
    names = [name for name in (rows[0] if rows else {}) if name != "route"]
    head = "".join(f"<th>{escape(row['route'])}</th>" for row in rows)
    body = "".join(
        f"<tr><td>{escape(name.replace('_', ' '))}</td>{_cells(row[name] for row in rows)}</tr>"
        for name in names
    )
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="card scroll">{table}</div>'


def _cells(values: Iterable[int | None]) -> str:
    return "".join(f"<td>{'-' if value is None else f'{value:,}'}</td>" for value in values)


def _stories(stories: Sequence[IdStory], untold: int) -> str:
    if not stories:
        return '<p class="none">No id is named.</p>'
    rest = f'<p class="none">{untold:,} more ids are named in violations/.</p>' if untold else ""
    return f"<h2>Stories</h2>{''.join(map(_story, stories))}{rest}"


def _story(story: IdStory) -> str:
    kinds = [*story.kinds, *(f"{kind}, in doubt" for kind in story.doubtful)]
    rows = "".join(
        f"<tr><td>{shown_instant(line.at_ms)}</td><td>{escape(line.source)}</td>"
        f"<td>{escape(line.text)}</td></tr>"
        for line in sorted(story.lines, key=_order)
    )
    title = f"{escape(story.route)}/{escape(story.id)}: {escape('; '.join(kinds))}"
    return f'<div class="card scroll story"><h3>{title}</h3><table>{rows}</table></div>'


def _order(line: StoryLine) -> tuple[bool, int]:
    return line.at_ms is None, line.at_ms or 0


def shown_instant(ms: int | None) -> str:
    """Return an instant for people; one that no calendar has as its number."""
    if ms is None:
        return ""
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
    return at.isoformat(" ", "milliseconds").replace("+00:00", "Z")
