"""A later life of a route binds the cold rows of an earlier one, whose files survived it."""

from collections.abc import Callable

import pytest

from duebridge.store.registry import Registry
from tests.store.cold.cold_desk import (
    Row,
    begin,
    copied,
    demoted,
    far,
    hydrate,
    tombstones,
)
from tests.support.desk import DAY_MS, YEAR_MS, Desk, acks, envelope, remembering
from tests.support.servers import wait_until


def purge(desk: Desk) -> None:
    """Remove the route, as `duebridge store purge` does."""
    Registry(desk.connection, desk.shard.namespace).remove_route(desk.shard.route, 1)


BEGIN_ANEW = pytest.mark.parametrize("end", [purge, Desk.delete], ids=["purged", "lost"])


def cold_in_an_earlier_life(desk: Desk, end: Callable[[Desk], None]) -> Row:
    """Let x go cold and begin another life of the route, in which no job has run."""
    row = demoted(desk, "x")
    end(desk)
    before = desk.client.time()
    wait_until(lambda: desk.client.time() >= (before[0], before[1] + 1000), "a ms of the server")
    desk.open()
    return row


@BEGIN_ANEW
def test_cancel_in_another_life_binds_cold_rows_of_the_earlier_one(
    desk: Desk, end: Callable[[Desk], None]
) -> None:
    row = cold_in_an_earlier_life(desk, end)
    assert desk.store.cancel("x") == "recorded"
    assert hydrate(desk, row) == "cancelled"
    assert desk.state_of("x") is None


@BEGIN_ANEW
def test_cancel_of_what_lives_in_another_life_ends_cold_rows_of_the_earlier_one(
    desk: Desk, end: Callable[[Desk], None]
) -> None:
    row = cold_in_an_earlier_life(desk, end)
    assert [each.status for each in desk.schedule(far("x"))] == ["accepted"]
    assert desk.store.cancel("x") == "cancelled"
    assert hydrate(desk, row) == "duplicate"
    assert desk.state_of("x") is None


@BEGIN_ANEW
def test_schedule_in_another_life_ends_cold_rows_of_the_earlier_one(
    desk: Desk, end: Callable[[Desk], None]
) -> None:
    row = cold_in_an_earlier_life(desk, end)
    begin(desk)
    assert [each.status for each in desk.schedule(far("x", b"other"))] == ["accepted"]
    assert hydrate(desk, row) == "duplicate"
    assert desk.store.cancel("x") == "cancelled"
    assert hydrate(desk, row) == "duplicate"


@BEGIN_ANEW
@pytest.mark.parametrize("body", [b"body", b"other"], ids=["the same", "other"])
def test_schedule_before_any_job_of_a_life_ends_cold_rows_of_the_earlier_one(
    desk: Desk, end: Callable[[Desk], None], body: bytes
) -> None:
    row = cold_in_an_earlier_life(desk, end)
    desk.pending(envelope("x", body=body))
    desk.clock.advance(1000)
    desk.store.ack(remembering(desk.claim_all()))
    begin(desk)
    with desk.unchanged():
        assert hydrate(desk, row) == "duplicate"


@BEGIN_ANEW
def test_row_of_a_life_before_whose_jobs_it_was_scheduled_comes_back_alone(
    desk: Desk, end: Callable[[Desk], None]
) -> None:
    earlier = cold_in_an_earlier_life(desk, end)
    assert [each.status for each in desk.schedule(far("x", b"other"))] == ["accepted"]
    begin(desk)
    row = copied(desk, "x", "C")
    assert desk.store.demote("C", 0, [("x", row.generation)]).removed == 1
    assert hydrate(desk, earlier) == "duplicate"
    assert hydrate(desk, row) == "accepted"


@BEGIN_ANEW
def test_reschedule_before_any_job_of_a_life_ends_cold_rows_of_the_earlier_one(
    desk: Desk, end: Callable[[Desk], None]
) -> None:
    row = cold_in_an_earlier_life(desk, end)
    desk.again(cold_tier_ms=0).schedule([far("x")], max_delay_ms=YEAR_MS)
    assert desk.store.reschedule("x", "+1000", YEAR_MS).status == "rescheduled"
    desk.clock.advance(1000)
    desk.store.ack(acks(desk.claim_all().token, "x"))
    begin(desk)
    with desk.unchanged():
        assert hydrate(desk, row) == "duplicate"


@BEGIN_ANEW
def test_id_for_one_use_that_was_cancelled_while_cold_in_an_earlier_life_stays_so(
    desk: Desk, end: Callable[[Desk], None]
) -> None:
    cold_in_an_earlier_life(desk, end)
    assert desk.store.cancel("x") == "recorded"
    assert [each.status for each in desk.schedule(far("x"), mode="once")] == ["cancelled"]
    assert desk.state_of("x") is None


@BEGIN_ANEW
def test_note_of_a_schedule_before_any_job_goes_after_a_day_unless_one_has_run(
    desk: Desk, end: Callable[[Desk], None]
) -> None:
    cold_in_an_earlier_life(desk, end)
    desk.pending("x")
    desk.clock.advance(DAY_MS)
    desk.store.forget()
    assert tombstones(desk) == set()
    desk.pending("y")
    begin(desk)
    desk.clock.advance(DAY_MS)
    desk.store.forget()
    assert tombstones(desk) == {"y"}


@BEGIN_ANEW
def test_hydrate_in_another_life_brings_back_what_nothing_binds(
    desk: Desk, end: Callable[[Desk], None]
) -> None:
    row = cold_in_an_earlier_life(desk, end)
    assert hydrate(desk, row) == "accepted"


def test_open_counts_no_skipped_generation_as_scheduled(desk: Desk) -> None:
    assert desk.store.stats().scheduled == 0
    desk.pending("a", envelope("b"))
    assert desk.store.stats().scheduled == 2
