"""An id that a call holds, such as that of a key over HTTP: remembered for a day, cold or not."""

import pytest

from tests.store.cold.cold_desk import (
    DUE_MS,
    copied,
    demoted,
    hydrate,
    sift,
    tombstones,
)
from tests.support.desk import DAY_MS, YEAR_MS, Desk, envelope

FILTERED = pytest.mark.parametrize("is_filtered", [True, False], ids=["filter", "no filter"])


def held(desk: Desk, body: bytes = b"body") -> str:
    """Schedule x as a request with a key does."""
    given = envelope("x", at=DUE_MS, body=body, remember="24h")
    (answer,) = desk.schedule(given, mode="hold")
    return str(answer.status)


@FILTERED
def test_id_that_is_held_and_was_cancelled_while_cold_answers_so_while_it_is_remembered(
    desk: Desk, is_filtered: bool
) -> None:
    if is_filtered:
        sift(desk, floor=0)
    assert held(desk) == "accepted"
    row = copied(desk, "x")
    assert desk.store.demote("B", 0, [("x", row.generation)]).removed == 1
    assert desk.store.cancel("x") == "recorded"
    for after_ms in (0, DAY_MS - 1):
        desk.clock.advance(after_ms)
        with desk.unchanged():
            assert held(desk) == "cancelled"
            assert held(desk, b"other") == "cancelled", "nobody here can compare it"
    desk.clock.advance(1)
    assert held(desk) == "accepted"
    assert hydrate(desk, row) == "duplicate"


@pytest.mark.parametrize("advance_ms", [DAY_MS, YEAR_MS - 1, YEAR_MS, YEAR_MS + DAY_MS])
def test_id_that_is_held_is_free_a_day_after_its_cancel_however_long_that_is_noted(
    desk: Desk, advance_ms: int
) -> None:
    demoted(desk, "x")
    assert desk.store.cancel("x") == "recorded"
    desk.clock.advance(advance_ms)
    desk.store.forget()
    assert tombstones(desk) == {"x"}
    given = envelope("x", delay="1d", remember="24h")
    assert [each.status for each in desk.schedule(given, mode="hold")] == ["accepted"]


@FILTERED
def test_id_that_is_held_and_cold_is_accepted_and_ends_the_cold_copy(
    desk: Desk, is_filtered: bool
) -> None:
    if is_filtered:
        sift(desk, floor=0)
    row = demoted(desk, "x")
    assert held(desk) == "accepted"
    assert hydrate(desk, row) == "duplicate"
