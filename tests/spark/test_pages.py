"""The pages of verdict and report: to be read without Spark, and nothing that a browser runs."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

from duebridge_connectors.spark.page.figures import ReportFigures
from duebridge_connectors.spark.page.html import render_page
from duebridge_connectors.spark.page.verdict import IdStory, StoryLine, render_verdict
from duebridge_connectors.spark.transforms.figures import KINDS
from duebridge_connectors.spark.transforms.reconciliation import Reconciliation

START = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)
HOSTILE = "<img src=x onerror=alert(1)>&\"'|*_`[a](javascript:b)\n# x"


def verdict(**more: object) -> Reconciliation:
    known: dict[str, object] = {
        "since_ms": 0, "until_ms": 1_700_000_000_000, "verdict": "broken", "holds": False,
        "missing": [f"receipts of {HOSTILE}"], "routes": [], "gaps": 0, "lost_entries": 0,
        "examples": {"lost": [f"r/{HOSTILE}"]}, "doubtful": {},
    }  # fmt: skip
    return Reconciliation(**(known | more))  # type: ignore[arg-type]


class _Read(HTMLParser):
    """The text of a page, and the tags of it that a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.bad = "", []  # type: str, list[str]

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "img", "iframe", "object", "embed", "base"):
            self.bad.append(tag)
        for name, value in attrs:
            is_away = name in ("src", "href") and not (value or "").startswith("#")
            if is_away or name.startswith("on"):
                self.bad.append(f"{name}={value}")


def read(page: str) -> _Read:
    found = _Read()
    found.feed(page)
    return found


def check_it_runs_nothing(page: str) -> None:
    assert read(page).bad == []
    assert "default-src 'none'" in page
    assert not re.search(r"url\(|@import", page)


def test_page_of_hostile_ids_shows_them_and_runs_nothing() -> None:
    line = StoryLine(5, HOSTILE, HOSTILE)
    stories = [IdStory(HOSTILE, HOSTILE, ["lost"], ["early"], [line])]
    page = render_verdict(verdict(), stories, 0)
    found = read(page)
    check_it_runs_nothing(page)
    assert f"{HOSTILE}/{HOSTILE}: lost; early, in doubt" in found.text
    assert found.text.count(HOSTILE) >= 5


def test_page_tells_a_story_in_the_order_of_time_and_counts_what_it_leaves_out() -> None:
    told = [(None, "store", "holds it"), (9, "broker", "came"), (5, "journal", "accepted")]
    lines = [StoryLine(*each) for each in told]
    text = read(render_verdict(verdict(), [IdStory("r", "a", ["lost"], [], lines)], 2_345)).text
    places = [text.index(word) for word in ("accepted\n", "came\n", "holds it\n", "2,345 more")]
    assert places == sorted(places)
    assert "1970-01-01 00:00:00.005Z" in text


def test_page_without_any_id_says_so() -> None:
    page = render_verdict(verdict(verdict="holds", examples={}, missing=[]), [], 0)
    assert "No id is named." in page
    assert "The guarantee held" in page


def found_with(**more: Any) -> ReportFigures:
    row = dict.fromkeys(KINDS, 0) | {
        "route": "<b>&", "at": START, "repeated": 0, "busiest_minute": 3, "delivered": 9,
        "lateness_p50_ms": 4, "lateness_p90_ms": 5, "lateness_p99_ms": 6, "lateness_max_ms": 7,
    }  # fmt: skip
    empty = {"hours": [row], "days": [row], "reasons": [], "gaps": [], "forecast": []}
    return ReportFigures(START, **(empty | more))


def test_page_of_a_report_runs_nothing_and_escapes_names() -> None:
    text = render_page(found_with())
    check_it_runs_nothing(text)
    assert "<b>&<" not in text
    assert "No dead letters, no gaps, no late day, and no rush ahead." in text


def test_page_of_a_report_of_what_is_overdue_for_weeks_shows_what_comes() -> None:
    hour = START.replace(minute=0)
    dues = {hour - timedelta(days=30): 40, hour + timedelta(hours=2): 3}
    text = render_page(
        found_with(forecast=[{"route": "<b>&", "at": at, "due": due} for at, due in dues.items()])
    )
    assert "02 Mar: 3 due" in text
    assert "40 were due before and wait" in text
    assert "no rush ahead" in text
