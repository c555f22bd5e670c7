"""Tombstones that hydrate has used up are dropped; those that may still bind a row are not."""

import pytest

from duebridge.errors import StoreError
from tests.store.conftest import Opened
from tests.store.desk import YEAR_MS, Desk


@pytest.fixture
def desk(open_desk: Opened) -> Desk:
    """A desk of a route with a cold tier, of which some rows are cold."""
    made = open_desk(cold_tier_ms=YEAR_MS)
    made.pending("other")
    return made


def names(desk: Desk) -> set[bytes]:
    return {name for name in desk.check()["memory"] if name[:1] in (b"t", b"x")}


def test_lift_drops_tombstones_and_void_copies(desk: Desk) -> None:
    desk.store.cancel("a")
    desk.store.reschedule("b", "+5000", YEAR_MS)
    desk.store.demote("B", 0, [("c/d", 1)])
    assert names(desk) == {b"ta", b"tb", b"xB/c/d"}
    assert desk.store.lift(2, ["ta", "tb", "xB/c/d"]) == 3
    assert names(desk) == set()


def test_lift_keeps_a_tombstone_that_was_left_meanwhile(desk: Desk) -> None:
    desk.store.cancel("a")
    began = 2  # the counter stood at 1
    desk.pending("another")
    desk.store.cancel("a")
    assert desk.store.lift(began, ["ta"]) == 0
    assert names(desk) == {b"ta"}


def test_lift_of_what_is_not_there_changes_nothing(desk: Desk) -> None:
    before = desk.snapshot()
    assert desk.store.lift(9, ["tnobody", "xB/nobody"]) == 0
    assert desk.snapshot() == before


def test_lift_of_1000_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    given = [f"t{n:04d}" for n in range(1000)]
    for name in given:
        desk.store.cancel(name[1:])
    with pytest.raises(StoreError, match="LIMIT"):
        desk.store.lift(9, [*given, "x"])
    assert desk.store.lift(9, given) == 1000
    desk.check()
