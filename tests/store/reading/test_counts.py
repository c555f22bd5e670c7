"""What is counted of a shard: what waits for each target, what falls due when, parts by rank."""

import pytest

from duebridge.errors import StoreError
from duebridge.store.aside import AsideCount
from duebridge.store.delay_store import MOST_EDGES, NO_CURSOR
from tests.support.desk import NOW_MS, Desk, envelope

EDGES = [NOW_MS, NOW_MS + 1000, NOW_MS + 2000, NOW_MS + 9000]


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


def test_histogram_counts_pending_by_due_from_each_edge_to_before_the_next(desk: Desk) -> None:
    desk.pending(*[envelope(f"{ms}", f"{ms}ms") for ms in (999, 1000, 1999, 2000, 8999, 9000)])
    with desk.unchanged():
        found = desk.store.histogram(EDGES)
    assert found == (desk.clock(), [1, 2, 2], [0, 0, 0])


def test_histogram_counts_retry_by_its_next_try_and_nothing_else_in_flight(desk: Desk) -> None:
    desk.dead("dead")
    desk.ready("ready")
    desk.suspect("suspect")
    desk.unack("unack")
    desk.retry("retry", delay_ms=1500)
    start = desk.clock()
    found = desk.store.histogram([0, start, start + 1000, start + 2000])
    assert (found.pending, found.retry) == ([0, 0, 0], [0, 0, 1])


def test_histogram_of_one_edge_has_no_bucket(desk: Desk) -> None:
    desk.pending("a")
    assert desk.store.histogram([NOW_MS])[1:] == ([], [])


def test_histogram_of_more_edges_than_it_takes_is_refused(desk: Desk) -> None:
    desk.pending("a")
    most = desk.store.histogram([NOW_MS + 100 * n for n in range(MOST_EDGES)])
    assert (len(most.pending), sum(most.pending)) == (MOST_EDGES - 1, 1)
    with pytest.raises(StoreError, match="LIMIT"):
        desk.store.histogram(range(MOST_EDGES + 1))


def test_split_names_the_last_row_of_each_part_but_the_last(desk: Desk) -> None:
    desk.pending(*[envelope(f"i{n}", f"{n + 1}s") for n in range(10)])
    with desk.unchanged():
        found = desk.store.split("pending", 4)
    assert found == (10, [("i3", NOW_MS + 4000), ("i7", NOW_MS + 8000)])


@pytest.mark.parametrize(("most", "cuts"), [(10, 0), (9, 1), (5, 1), (1, 9)])
def test_split_has_no_empty_part(desk: Desk, most: int, cuts: int) -> None:
    desk.pending(*[envelope(f"i{n}", f"{n + 1}s") for n in range(10)])
    assert len(desk.store.split("pending", most).cuts) == cuts


def test_split_of_rows_with_one_score_cuts_between_them(desk: Desk) -> None:
    desk.pending(*[envelope(name, "5s") for name in "dbca"])
    cuts = desk.store.split("pending", 2).cuts
    assert cuts == [("b", NOW_MS + 5000)]
    rest = desk.store.list("pending", cursor=cuts[0])
    assert [entry.id for entry in rest.entries] == ["c", "d"]


def test_split_of_a_due_range_counts_it_alone(desk: Desk) -> None:
    desk.pending(*[envelope(f"i{n}", f"{n}s") for n in range(1, 9)])
    found = desk.store.split("pending", 2, NOW_MS + 3000, NOW_MS + 6000)
    assert found == (4, [("i4", NOW_MS + 4000)])


def test_split_of_dead_without_a_target_has_a_cursor_of_list(desk: Desk) -> None:
    desk.dead("a", "b", "c")
    desk.client.zadd(desk.key("dead"), dict.fromkeys("abc", "+inf"))
    ((name, score),) = desk.store.split("dead", 2).cuts
    assert (name, score) == ("b", -1)
    assert [entry.id for entry in desk.store.list("dead", cursor=(name, score)).entries] == ["c"]


def test_split_into_more_parts_than_it_makes_gives_larger_ones(desk: Desk) -> None:
    desk.pending(*[envelope(f"i{n:04}", "5s") for n in range(999)])
    assert len(desk.store.split("pending", 1).cuts) == 499


def test_split_of_an_unknown_state_is_refused(desk: Desk) -> None:
    assert desk.store.split("retry", 5) == (0, [])
    with pytest.raises(StoreError, match="STATE"):
        desk.store.split("gone", 5)
