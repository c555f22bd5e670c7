"""Cancel and reschedule answer what is certain."""

import pytest

from duebridge.errors import StoreError
from duebridge.store.batching import CallId
from duebridge.store.wire.transitions import ScheduleMode
from tests.support.desk import (
    DAY_MS,
    LEASE_MS,
    NOW_MS,
    YEAR_MS,
    Desk,
    acks,
    envelope,
    noted,
)


@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
def test_cancel_where_nobody_delivers_is_certain(desk: Desk, state: str) -> None:
    due = desk.clock() + 1000
    desk.bring(state, "a")
    attempt = desk.flight_of("a").attempt
    assert desk.store.cancel("a") == "cancelled"
    assert desk.state_of("a") is None
    entry = desk.last_entry()
    assert (entry.kind, noted(entry)) == ("cancelled", [("a", (due, attempt, None))])
    desk.check()
    desk.clock.advance(10 * LEASE_MS)
    assert desk.claim_all().leased == []


def test_cancel_in_unack_leaves_a_mark_and_changes_no_lease(desk: Desk) -> None:
    claim = desk.unack("a")
    deadline = desk.score_of("a", "unack")
    assert desk.store.cancel("a") == "in_flight"
    assert desk.flight_of("a").cancel
    assert desk.score_of("a", "unack") == deadline
    assert desk.store.cancel("a") == "in_flight"
    assert desk.journal() == [("accepted", ["a"])]
    desk.check()
    assert desk.store.ack(acks(claim.token, "a")).stale == []


def cancel(desk: Desk, call_id: str) -> bytes:
    answer: bytes = desk.run("cancel", "a", call_id, 60_000, 0)[1]
    return answer


@pytest.mark.parametrize("state", ["pending", "retry", "suspect", "unack"])
def test_cancel_repeated_under_its_call_id_answers_as_it_did(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    first = cancel(desk, "call")
    with desk.unchanged():
        desk.clock.advance(59_999)
        assert cancel(desk, "call") == first


def test_call_of_the_callers_own_answers_again_for_its_time(desk: Desk) -> None:
    desk.pending("a", "b")
    moved, gone = CallId(b"moved", DAY_MS), CallId(b"gone", DAY_MS)
    first = desk.store.reschedule("b", "+5000", YEAR_MS, moved)
    assert desk.store.cancel("a", call=gone) == "cancelled"
    desk.clock.advance(DAY_MS - 1)
    with desk.unchanged():
        assert desk.store.reschedule("b", "+5000", YEAR_MS, moved) == first
        assert desk.store.cancel("a", call=gone) == "cancelled"
        assert desk.store.cancel("a") == "unknown"


def test_cancel_keeps_its_answer_for_twice_the_time_of_repeating(desk: Desk) -> None:
    desk.pending("a")
    desk.again(repeat_for_s=100.0).cancel("a")
    assert desk.store.next().first_forget_ms == desk.clock() + 200_000


@pytest.mark.parametrize(("mode", "answer"), [("replace", "in_flight"), ("refuse", "duplicate")])
def test_schedule_again_after_a_cancel_that_waits_tells_whether_it_is_too_late(
    desk: Desk, mode: ScheduleMode, answer: str
) -> None:
    claim = desk.unack("a")
    assert desk.store.cancel("a") == "in_flight"
    assert [each.status for each in desk.schedule(envelope("a"), mode=mode)] == [answer]
    desk.store.release(claim.token, claim.ids)
    assert desk.state_of("a") is None


@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
@pytest.mark.parametrize("how", ["ghost", "newer", 0, 1, 5, 38])
def test_cancel_of_what_cannot_be_read_removes_it(desk: Desk, how: str | int, state: str) -> None:
    desk.bring(state, "a")
    desk.spoil("a", how)
    assert desk.store.cancel("a") == "cancelled"
    desk.check()


@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
def test_reschedule_where_nobody_delivers_gives_another_due(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    before = desk.record_of("a")
    due = desk.clock() + 5000
    assert desk.store.reschedule("a", "+5000", YEAR_MS) == ("rescheduled", due)
    assert desk.state_of("a") == "pending"
    after = desk.record_of("a")
    assert desk.score_of("a", "pending") == after.due_at_ms == due
    assert after.generation > before.generation
    assert (after.blob, after.content_hash) == (before.blob, before.content_hash)
    assert (after.scheduled_at_ms, after.remember_ms) == (NOW_MS, 0)
    entry = desk.last_entry()
    assert (entry.kind, noted(entry)) == ("rescheduled", [("a", (due, None, None))])
    desk.check()
    desk.clock.advance(4999)
    assert desk.claim_all().leased == []
    desk.clock.advance(1)
    assert [each.record.due_at_ms for each in desk.claim_all().leased] == [due]


def test_reschedule_to_an_earlier_or_a_past_instant(desk: Desk) -> None:
    desk.pending(envelope("a", "1h"))
    assert desk.store.reschedule("a", str(NOW_MS + 10), YEAR_MS).due_at_ms == NOW_MS + 10
    assert desk.store.reschedule("a", "77", YEAR_MS) == ("rescheduled", NOW_MS)
    assert desk.store.promote()[1] == 1


def test_reschedule_beyond_the_longest_delay_changes_nothing(desk: Desk) -> None:
    desk.pending("a")
    with desk.unchanged():
        assert desk.store.reschedule("a", "+1001", 1000).status == "too_far"
        assert desk.store.reschedule("a", str(NOW_MS + 1001), 1000).status == "too_far"
    assert desk.store.reschedule("a", "+1000", 1000).status == "rescheduled"


def test_reschedule_beyond_expiry_changes_nothing(desk: Desk) -> None:
    desk.pending(envelope("a", expires="2s"))
    with desk.unchanged():
        assert desk.store.reschedule("a", "+2000", YEAR_MS).status == "expires_before_due"
    assert desk.store.reschedule("a", "+1999", YEAR_MS).status == "rescheduled"
    assert desk.record_of("a").expires_at_ms == NOW_MS + 2000


@pytest.mark.parametrize(("how", "expected"), [("newer", "LAYOUT"), ("ghost", "unknown")])
def test_reschedule_of_what_cannot_be_read_changes_nothing(
    desk: Desk, how: str, expected: str
) -> None:
    desk.pending("a")
    desk.spoil("a", how)
    with desk.unchanged():
        try:
            answer = desk.store.reschedule("a", "+5000", YEAR_MS).status
        except StoreError as error:
            answer = str(error)
    assert expected in answer


def test_reschedule_keeps_what_happened_to_a_retry(desk: Desk) -> None:
    desk.retry("a", error="E\nno")
    desk.store.reschedule("a", "+1", YEAR_MS)
    flight = desk.flight_of("a")
    assert (flight.attempt, flight.failures, flight.retries) == (1, 1, 1)
    desk.clock.advance(1)
    claim = desk.claim_all()
    desk.store.release(claim.token, ["a"])
    assert desk.score_of("a", "ready") == desk.clock(), "a release goes back by the new due"
