"""What a shard knows of its cold tier, for the jobs that read all of it at once."""

import pytest

from duebridge.store.cold import ColdNotes, Mark
from tests.store.conftest import Opened
from tests.store.desk import NOW_MS, YEAR_MS, Desk


@pytest.fixture
def desk(open_desk: Opened) -> Desk:
    return open_desk(cold_tier_ms=YEAR_MS)


def notes(desk: Desk) -> ColdNotes:
    return ColdNotes(desk.connection, desk.shard)


def test_marks_are_every_tombstone_and_void_copy_and_nothing_else(desk: Desk) -> None:
    desk.pending("alive")
    desk.store.cancel("a")
    desk.store.reschedule("b/ü", "+5000", YEAR_MS)
    desk.store.demote("B", 0, [("c/d", 7)])
    assert sorted(notes(desk).marks()) == [
        Mark("ta", "a", "", 1, 0, 1),
        Mark("tb/ü", "b/ü", "", 1, NOW_MS + 5000, 0),
        Mark("xB/c/d", "c/d", "B", 0, 0, 0),
    ]


def test_marks_of_many_are_all_there(desk: Desk) -> None:
    for n in range(3000):
        desk.store.cancel(f"{n}")
    assert len({mark.id for mark in notes(desk).marks()}) == 3000


def test_new_generation_is_greater_than_all_before_and_less_than_all_later(desk: Desk) -> None:
    desk.pending("a")
    made = notes(desk).new_generation()
    desk.pending("b")
    assert desk.record_of("a").generation < made < desk.record_of("b").generation


def test_hydrated_until_is_what_was_noted_and_in_every_poll(desk: Desk) -> None:
    assert not desk.store.next().has_cold
    notes(desk).note_first(NOW_MS + 5)
    notes(desk).note_first(NOW_MS + 9)
    assert desk.store.next().cold_left_ms == 5
    notes(desk).note_hydrated(NOW_MS + 7)
    assert desk.store.next().cold_left_ms == 7
    desk.check()
