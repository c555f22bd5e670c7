"""A state divided by rank: parts of equal size, whatever the scores; nothing is read or changed."""

import pytest

from duebridge.errors import StoreError
from tests.support.desk import NOW_MS, Desk, envelope


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
