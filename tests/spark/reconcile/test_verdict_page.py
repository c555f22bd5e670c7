"""The page of a verdict: every story to be read without Spark, and nothing that a browser runs."""

import re
from html.parser import HTMLParser

from duebridge_connectors.spark.page.verdict import IdStory, StoryLine, render_verdict
from duebridge_connectors.spark.transforms.reconciliation import Reconciliation

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
        names = [name for name, _ in attrs if name in ("src", "href") or name.startswith("on")]
        if names or tag in ("script", "img", "iframe", "object", "embed", "base"):
            self.bad.append(tag)


def read(page: str) -> _Read:
    found = _Read()
    found.feed(page)
    return found


def test_page_of_hostile_ids_shows_them_and_runs_nothing() -> None:
    line = StoryLine(5, HOSTILE, HOSTILE)
    stories = [IdStory(HOSTILE, HOSTILE, ["lost"], ["early"], [line])]
    page = render_verdict(verdict(), stories, 0)
    found = read(page)
    assert found.bad == []
    assert "default-src 'none'" in page
    assert not re.search(r"url\(|@import", page)
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
