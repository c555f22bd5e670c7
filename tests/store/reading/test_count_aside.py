"""What waits for each target is counted, a page at a time, among retries of any cause."""

import pytest

from duebridge.store.aside import AsideCount
from duebridge.store.delay_store import NO_CURSOR
from tests.support.desk import Desk


def fill(desk: Desk) -> None:
    """Four wait for one target, two for another, and three for a back-off alone."""
    for n in range(9):
        if n % 3:
            desk.set_aside(f"a{n}", tag="tag-of-t" if n < 6 else "tag-of-u")
        else:
            desk.retry(f"b{n}", delay_ms=60_000)


@pytest.mark.parametrize("limit", [1, 2, 9, 10, 1000])
def test_count_aside_tells_targets_apart_whatever_the_page(desk: Desk, limit: int) -> None:
    fill(desk)
    found = {"tag-of-t": 0, "tag-of-u": 0}
    cursor: tuple[str, str] | None = NO_CURSOR
    with desk.unchanged():
        while cursor is not None:
            page = desk.store.count_aside(limit, cursor)
            cursor = page.cursor
            for tag, count in page.counts.items():
                found[tag] += count
    assert found == {"tag-of-t": 4, "tag-of-u": 2}


def test_count_aside_of_nothing_is_empty(desk: Desk) -> None:
    assert desk.store.count_aside(10) == ({}, None)


def test_count_goes_on_where_it_stood_and_keeps_the_latest_round(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duebridge.store.aside.CALL_ROWS", 2)
    fill(desk)
    count = AsideCount()
    count.go_on(desk.store, 2)
    assert sum(count.by_tag.values()) < 6
    count.go_on(desk.store, 9)
    assert count.by_tag == {"tag-of-t": 4, "tag-of-u": 2}
    desk.store.resume("tag-of-u")
    count.go_on(desk.store, 9)
    assert count.by_tag == {"tag-of-t": 4}
    count.forget()
    assert count.by_tag == {}
