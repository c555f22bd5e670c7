"""A later life of a route binds the cold rows of an earlier one, whose files survived it."""

from collections.abc import Callable

import pytest

from duebridge.store.registry import Registry
from tests.store.cold.cold_desk import (
    DUE_MS,
    Row,
    begin,
    copied,
    demoted,
    far,
    hydrate,
    tombstones,
)
from tests.store.conftest import Opened
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


def rescheduled(desk: Desk, id: str) -> None:
    """Schedule an envelope and give it another due instant."""
    desk.pending(id)
    assert desk.store.reschedule(id, "+100000000", YEAR_MS).status == "rescheduled"


def displaced(desk: Desk, id: str) -> None:
    """Let newer content of an id cancel what was stored beside it while it was on its way."""
    claim = desk.unack(id)
    beside = envelope(f"{id}~2", at=DUE_MS, body=b"2")
    (answer,) = desk.schedule(beside, mode="replace", primary_ids=[id])
    assert answer.status == "accepted"
    desk.store.ack(acks(claim.token, id))
    (answer,) = desk.schedule(envelope(id, at=DUE_MS, body=b"3"), mode="replace")
    assert answer.status == "accepted"
    assert desk.state_of(f"{id}~2") is None


def displaced_after_its_end(desk: Desk, id: str) -> None:
    """The same, where what was beside the id has gone."""
    claim = desk.unack(id)
    beside = envelope(f"{id}~2", body=b"2")
    assert desk.schedule(beside, mode="replace", primary_ids=[id])[0].status == "accepted"
    desk.store.ack(acks(claim.token, id))
    desk.clock.advance(1000)
    desk.store.ack(remembering(desk.claim_all()))
    (answer,) = desk.schedule(envelope(id, at=DUE_MS, body=b"3"), mode="replace")
    assert answer.status == "accepted"


@pytest.mark.parametrize("move", [rescheduled, displaced, displaced_after_its_end])
def test_note_of_what_ended_before_any_job_goes_after_a_day_unless_one_has_run(
    open_desk: Opened, move: Callable[[Desk, str], None]
) -> None:
    desk = open_desk(cold_tier_ms=YEAR_MS)
    move(desk, "x")
    noted = tombstones(desk)
    assert noted
    desk.clock.advance(DAY_MS // 2)
    desk.store.forget()
    assert tombstones(desk) == noted
    desk.clock.advance(DAY_MS // 2)
    desk.store.forget()
    assert tombstones(desk) == set()
    begin(desk)
    move(desk, "y")
    noted = tombstones(desk)
    desk.clock.advance(DAY_MS)
    desk.store.forget()
    assert tombstones(desk) == noted


@pytest.mark.parametrize("is_here", [True, False])
def test_note_of_a_cancel_before_any_job_stays_as_long_as_others(
    open_desk: Opened, is_here: bool
) -> None:
    """What was cancelled stays so, whenever a job of the route's life comes."""
    desk = open_desk(cold_tier_ms=YEAR_MS)
    if is_here:
        desk.pending("x")
    assert desk.store.cancel("x") == ("cancelled" if is_here else "recorded")
    desk.clock.advance(YEAR_MS - 1)
    desk.store.forget()
    assert tombstones(desk) == {"x"}


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
