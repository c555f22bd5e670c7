"""The filter of cold ids: it has every id that was marked, few others, and is rebuilt in place."""

import pytest

from duebridge.errors import StoreError
from tests.store.cold.cold_desk import sift
from tests.support.desk import Desk

IDS = 2000
WORDS = 14 * IDS // 32
MOST_FALSE = 0.03  # of 14 bits an id, up to four set in one word: 1.1 %


def may_be_cold(desk: Desk, id: str) -> bool:
    return desk.store.cancel(id) == "recorded"


def mark(desk: Desk, names: list[str], lowest: int | None = 1) -> None:
    for first in range(0, len(names), 1000):
        desk.store.mark(names[first : first + 1000], lowest, "")


def test_filter_has_every_id_that_was_marked_and_few_others(desk: Desk) -> None:
    sift(desk, floor=1, words=WORDS)
    mark(desk, [f"cold-{n}" for n in range(IDS)])
    assert all(may_be_cold(desk, f"cold-{n}") for n in range(0, IDS, 7))
    others = sum(may_be_cold(desk, f"other-{n}") for n in range(500))
    assert others <= MOST_FALSE * 500
    assert desk.client.strlen(desk.key("cold_b")) == 4 * WORDS


def test_sift_forgets_what_is_cold_no_more_and_keeps_what_is_marked_meanwhile(desk: Desk) -> None:
    sift(desk, "gone", "kept", floor=1)
    desk.store.begin_sift(128, 1, "")
    mark(desk, ["kept"], None)
    mark(desk, ["meanwhile"])
    assert may_be_cold(desk, "gone"), "the one in use is whole until the end"
    assert not may_be_cold(desk, "other")
    assert desk.store.end_sift(1, "") == 2
    found = [name for name in ("gone", "kept", "meanwhile", "other") if may_be_cold(desk, name)]
    assert found == ["kept", "meanwhile"]


def test_sift_that_was_begun_again_starts_empty_and_a_second_end_is_refused(desk: Desk) -> None:
    sift(desk, "kept", floor=1)
    desk.store.begin_sift(128, 1, "")
    mark(desk, ["dropped"], None)
    sift(desk, "kept", floor=1)
    assert not may_be_cold(desk, "dropped")
    assert may_be_cold(desk, "kept")
    with pytest.raises(StoreError, match="SIFT no rebuild was begun"):
        desk.store.end_sift(1, "")


def test_mark_of_an_id_again_counts_nothing(desk: Desk) -> None:
    sift(desk, floor=1)
    for _ in range(2):
        mark(desk, ["a", "b"])
    assert desk.client.hget(desk.key("meta"), "cold_marked") == b"2"


def test_mark_of_1000_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    sift(desk, floor=1, words=WORDS)
    with pytest.raises(StoreError, match="LIMIT"):
        desk.store.mark([f"{n}" for n in range(1001)], 1, "")
    assert desk.store.mark([f"{n}" for n in range(1000)], 1, "") == []
    assert desk.client.hget(desk.key("meta"), "cold_marked") is not None
