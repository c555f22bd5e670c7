"""An id that a call holds, such as that of a key over HTTP: remembered for a day, cold or not."""

import pytest

from duebridge.store.delay_store import DelayStore
from tests.store.cold.cold_desk import (
    DUE_MS,
    begin,
    copied,
    demoted,
    hydrate,
    sift,
    tombstones,
)
from tests.store.conftest import Opened
from tests.support.desk import DAY_MS, YEAR_MS, Desk, envelope

HOUR_MS = 3_600_000

FILTERED = pytest.mark.parametrize("is_filtered", [True, False], ids=["filter", "no filter"])


def held(desk: Desk, body: bytes = b"body") -> str:
    """Schedule x as a request with a key does."""
    given = envelope("x", at=DUE_MS, body=body, remember="24h")
    (answer,) = desk.schedule(given, mode="hold")
    return str(answer.status)


def asked_again(store: DelayStore, max_delay_ms: int = YEAR_MS) -> str:
    """Repeat the request that made x, which the id's life before has no say in."""
    given = envelope("x", delay="1h", remember="24h")
    (answer,) = store.schedule([given], max_delay_ms=max_delay_ms, mode="hold")
    return str(answer.status)


def cancelled_while_cold(desk: Desk) -> None:
    """Let x go cold and cancel it there."""
    assert [each.status for each in desk.schedule(envelope("x", delay="11h"))] == ["accepted"]
    row = copied(desk, "x", f"B{desk.clock()}")
    assert desk.store.demote(row.batch, 0, [("x", row.generation)]).removed == 1
    assert desk.store.cancel("x") == "recorded"


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


@pytest.mark.parametrize("max_delay_ms", [12 * HOUR_MS, DAY_MS, 36 * HOUR_MS, 3 * DAY_MS])
@pytest.mark.parametrize("days", [0, 1, 7])
def test_id_that_is_held_is_free_a_day_after_its_cancel_however_often_that_is_looked_at(
    open_desk: Opened, max_delay_ms: int, days: int
) -> None:
    desk = open_desk(cold_tier_ms=max_delay_ms)
    begin(desk)
    cancelled_while_cold(desk)
    desk.clock.advance(DAY_MS - 1)
    desk.store.forget()
    with desk.unchanged():
        assert asked_again(desk.store, max_delay_ms) == "cancelled"
    desk.clock.advance(1)
    desk.store.forget()
    for _ in range(days):
        desk.clock.advance(DAY_MS)
        desk.store.forget()
    assert tombstones(desk) == {"x"}
    assert asked_again(desk.store, max_delay_ms) == "accepted"


@pytest.mark.parametrize("later_ms", [0, 30 * DAY_MS, 2 * YEAR_MS], ids=["off", "less", "more"])
def test_id_that_is_held_is_so_for_a_day_whatever_became_of_max_delay(
    desk: Desk, later_ms: int
) -> None:
    cancelled_while_cold(desk)
    store = desk.again(cold_tier_ms=later_ms)
    desk.clock.advance(DAY_MS - 1)
    with desk.unchanged():
        assert asked_again(store) == "cancelled"
    desk.clock.advance(1)
    assert asked_again(store) == "accepted"


def test_id_that_is_held_is_free_a_day_after_its_cancel_if_it_was_rescheduled_since(
    desk: Desk,
) -> None:
    cancelled_while_cold(desk)
    desk.pending("other")
    desk.clock.advance(DAY_MS - 1)
    assert desk.store.reschedule("x", "+1000", YEAR_MS).status == "recorded"
    assert asked_again(desk.store) == "cancelled"
    desk.clock.advance(1)
    assert asked_again(desk.store) == "accepted"


def test_id_that_is_held_is_so_from_its_last_cancel_on(desk: Desk) -> None:
    cancelled_while_cold(desk)
    desk.clock.advance(DAY_MS)
    cancelled_while_cold(desk)
    desk.clock.advance(DAY_MS - 1)
    with desk.unchanged():
        assert asked_again(desk.store) == "cancelled"
    desk.clock.advance(1)
    assert asked_again(desk.store) == "accepted"


def test_id_that_is_held_is_free_if_an_earlier_version_cancelled_it(desk: Desk) -> None:
    """It noted no instant; the cold row stays cancelled."""
    row = demoted(desk, "x")
    assert desk.store.cancel("x") == "recorded"
    value = desk.client.hget(desk.key("memory"), "tx")
    desk.client.hset(desk.key("memory"), "tx", value[:30])
    assert hydrate(desk, row) == "cancelled"
    assert asked_again(desk.store) == "accepted"


@FILTERED
def test_id_that_is_held_and_cold_is_accepted_and_ends_the_cold_copy(
    desk: Desk, is_filtered: bool
) -> None:
    if is_filtered:
        sift(desk, floor=0)
    row = demoted(desk, "x")
    assert held(desk) == "accepted"
    assert hydrate(desk, row) == "duplicate"
