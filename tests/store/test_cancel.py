"""Cancel and reschedule answer what is certain."""

import pytest

from duebridge.errors import StoreError
from duebridge.ports.publisher import Reason
from duebridge.store.transitions import Burial
from tests.support.desk import LEASE_MS, NOW_MS, YEAR_MS, Desk, envelope


@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
def test_cancel_where_nobody_delivers_is_certain(desk: Desk, state: str) -> None:
    due = desk.clock() + 1000
    desk.bring(state, "a")
    attempt = desk.flight_of("a").attempt
    assert desk.store.cancel("a") == "cancelled"
    assert desk.state_of("a") is None
    entry = desk.last_entry()
    assert (entry.kind, entry.items) == ("cancelled", [("a", (due, attempt, None))])
    desk.check()
    desk.clock.advance(10 * LEASE_MS)
    assert desk.claim_all().leased == []


def test_cancel_of_a_rescheduled_one_tells_its_new_due(desk: Desk) -> None:
    desk.retry("a")
    desk.store.reschedule("a", "+7000", YEAR_MS)
    desk.store.cancel("a")
    assert desk.last_entry().items[0][1].due_at_ms == desk.clock() + 7000


def test_cancel_of_a_suspect_removes_it_without_certainty(desk: Desk) -> None:
    desk.suspect("a")
    assert desk.store.cancel("a") == "in_flight"
    assert desk.state_of("a") is None
    assert desk.journal()[-1] == ("cancelled", ["a"])
    desk.check()


def test_cancel_of_an_unsure_retry_removes_it_without_certainty(desk: Desk) -> None:
    desk.retry("a", failed=False, unsure=True)
    assert desk.store.cancel("a") == "in_flight"
    assert desk.state_of("a") is None
    desk.check()


def test_cancel_in_unack_leaves_a_mark_and_changes_no_lease(desk: Desk) -> None:
    claim = desk.unack("a")
    deadline = desk.score_of("a", "unack")
    assert desk.store.cancel("a") == "in_flight"
    assert desk.flight_of("a").cancel
    assert desk.score_of("a", "unack") == deadline
    assert desk.store.cancel("a") == "in_flight"
    assert desk.journal() == [("accepted", ["a"])]
    desk.check()
    assert desk.store.ack(claim.token, ["a"]).stale == []


@pytest.mark.parametrize("how", ["retry", "release", "bury", "reclaim"])
def test_cancel_mark_is_obeyed_when_no_worker_holds_it(desk: Desk, how: str) -> None:
    due = desk.clock() + 1000
    claim = desk.unack("a")
    desk.store.cancel("a")
    if how == "retry":
        desk.put_back(claim)
    elif how == "release":
        desk.store.release(claim.token, ["a"])
    elif how == "bury":
        desk.store.bury(
            claim.token,
            [Burial(id="a", reason=Reason.INVALID, is_failure=True, is_unsure=False, error="")],
        )
    else:
        desk.run_out()
    assert desk.state_of("a") is None
    assert desk.last_entry().kind == "cancelled"
    assert desk.last_entry().items == [("a", (due, 1, None))]
    desk.check()


@pytest.mark.parametrize("state", ["dead", "shunting"])
def test_cancel_of_the_dead_says_so_and_changes_nothing(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    before = desk.snapshot()
    assert desk.store.cancel("a") == "dead"
    assert desk.snapshot() == before


def test_cancel_of_an_unknown_id_says_so_and_changes_nothing(desk: Desk) -> None:
    desk.pending("b")
    before = desk.snapshot()
    assert desk.store.cancel("a") == "unknown"
    assert desk.snapshot() == before


def cancel(desk: Desk, call_id: str) -> bytes:
    answer: bytes = desk.run("cancel", "a", call_id, 60_000, 0)[1]
    return answer


@pytest.mark.parametrize("state", ["pending", "retry", "suspect", "unack"])
def test_cancel_repeated_under_its_call_id_answers_as_it_did(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    first = cancel(desk, "call")
    before = desk.snapshot()
    desk.clock.advance(59_999)
    assert cancel(desk, "call") == first
    assert desk.snapshot() == before


def test_cancel_repeated_leaves_a_new_life_alone(desk: Desk) -> None:
    desk.pending("a")
    assert cancel(desk, "call") == b"cancelled"
    desk.pending(envelope("a", body=b"a new life"))
    before = desk.snapshot()
    assert cancel(desk, "call") == b"cancelled"
    assert desk.snapshot() == before


def test_cancel_under_another_call_id_is_asked_anew(desk: Desk) -> None:
    desk.pending("a")
    assert cancel(desk, "one") == b"cancelled"
    assert cancel(desk, "two") == b"unknown"


def test_cancel_answer_is_kept_for_its_time(desk: Desk) -> None:
    desk.pending("a")
    cancel(desk, "call")
    desk.clock.advance(60_000)
    assert cancel(desk, "call") == b"unknown"


def test_cancel_keeps_its_answer_for_twice_the_time_of_repeating(desk: Desk) -> None:
    desk.pending("a")
    desk.again(repeat_for_s=100.0).cancel("a")
    assert desk.store.next().first_forget_ms == desk.clock() + 200_000


@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
def test_cancel_of_a_ghost_clears_it_away(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    desk.lose_record("a")
    assert desk.store.cancel("a") == "cancelled"
    desk.check()


@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
def test_cancel_of_a_newer_layout_removes_it(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    desk.make_newer("a")
    assert desk.store.cancel("a") == "cancelled"
    desk.check()


@pytest.mark.parametrize("kept_bytes", [0, 1, 5, 38])
def test_cancel_of_a_damaged_record_removes_it(desk: Desk, kept_bytes: int) -> None:
    desk.pending("a")
    desk.replaced_record("a", lambda record: record[:kept_bytes])
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
    assert (entry.kind, entry.items) == ("rescheduled", [("a", (due, None, None))])
    desk.check()
    desk.clock.advance(4999)
    assert desk.claim_all().leased == []
    desk.clock.advance(1)
    assert [each.record.due_at_ms for each in desk.claim_all().leased] == [due]


def test_reschedule_keeps_what_happened_to_a_retry(desk: Desk) -> None:
    desk.retry("a", error="E\nno")
    desk.store.reschedule("a", "+1", YEAR_MS)
    flight = desk.flight_of("a")
    assert (flight.attempt, flight.failures, flight.retries) == (1, 1, 1)
    desk.clock.advance(1)
    claim = desk.claim_all()
    desk.store.release(claim.token, ["a"])
    assert desk.score_of("a", "ready") == desk.clock(), "a release goes back by the new due"


def test_reschedule_to_an_earlier_or_a_past_instant(desk: Desk) -> None:
    desk.pending(envelope("a", "1h"))
    assert desk.store.reschedule("a", str(NOW_MS + 10), YEAR_MS).due_at_ms == NOW_MS + 10
    assert desk.store.reschedule("a", "77", YEAR_MS) == ("rescheduled", NOW_MS)
    assert desk.store.promote()[1] == 1


@pytest.mark.parametrize(
    ("state", "answer"),
    [("unack", "in_flight"), ("suspect", "in_flight"), ("dead", "dead"), ("shunting", "dead")],
)
def test_reschedule_elsewhere_says_so_and_changes_nothing(
    desk: Desk, state: str, answer: str
) -> None:
    desk.bring(state, "a")
    before = desk.snapshot()
    assert desk.store.reschedule("a", "+5000", YEAR_MS).status == answer
    assert desk.store.reschedule("nobody", "+5000", YEAR_MS).status == "unknown"
    assert desk.snapshot() == before


def test_reschedule_of_an_unsure_retry_changes_nothing(desk: Desk) -> None:
    desk.retry("a", failed=False, unsure=True)
    before = desk.snapshot()
    assert desk.store.reschedule("a", "+5000", YEAR_MS).status == "in_flight"
    assert desk.snapshot() == before


def test_reschedule_beyond_the_longest_delay_changes_nothing(desk: Desk) -> None:
    desk.pending("a")
    before = desk.snapshot()
    assert desk.store.reschedule("a", "+1001", 1000).status == "too_far"
    assert desk.store.reschedule("a", str(NOW_MS + 1001), 1000).status == "too_far"
    assert desk.snapshot() == before
    assert desk.store.reschedule("a", "+1000", 1000).status == "rescheduled"


def test_reschedule_beyond_expiry_changes_nothing(desk: Desk) -> None:
    desk.pending(envelope("a", expires="2s"))
    before = desk.snapshot()
    assert desk.store.reschedule("a", "+2000", YEAR_MS).status == "expires_before_due"
    assert desk.snapshot() == before
    assert desk.store.reschedule("a", "+1999", YEAR_MS).status == "rescheduled"
    assert desk.record_of("a").expires_at_ms == NOW_MS + 2000


def reschedule(desk: Desk, call_id: str, due: str = "+5000") -> tuple[bytes, int]:
    _, answer, due_at_ms = desk.run("reschedule", "a", due, YEAR_MS, call_id, 60_000, 0)
    return answer, due_at_ms


def test_reschedule_repeated_under_its_call_id_answers_as_it_did(desk: Desk) -> None:
    desk.pending("a")
    first = reschedule(desk, "call")
    desk.clock.advance(700)
    before = desk.snapshot()
    assert reschedule(desk, "call") == first == (b"rescheduled", NOW_MS + 5000)
    assert desk.snapshot() == before


@pytest.mark.parametrize("meanwhile", ["unack", "delivered", "cancelled", "rescheduled"])
def test_reschedule_repeated_after_the_envelope_moved_on_changes_nothing(
    desk: Desk, meanwhile: str
) -> None:
    desk.pending("a")
    first = reschedule(desk, "call")
    if meanwhile == "cancelled":
        desk.store.cancel("a")
    elif meanwhile == "rescheduled":
        reschedule(desk, "another", "+9000")
    else:
        desk.clock.advance(5000)
        claim = desk.claim_all()
        if meanwhile == "delivered":
            desk.store.ack(claim.token, ["a"])
    before = desk.snapshot()
    assert reschedule(desk, "call") == first
    assert desk.snapshot() == before


def test_reschedule_answer_is_kept_for_its_time(desk: Desk) -> None:
    desk.pending(envelope("a", "1h"))
    reschedule(desk, "call")
    desk.clock.advance(60_000)
    assert reschedule(desk, "call") == (b"rescheduled", desk.clock() + 5000)


def test_reschedule_of_a_newer_layout_is_refused_and_changes_nothing(desk: Desk) -> None:
    desk.pending("a")
    desk.make_newer("a")
    before = desk.snapshot()
    with pytest.raises(StoreError, match="LAYOUT"):
        desk.store.reschedule("a", "+5000", YEAR_MS)
    assert desk.snapshot() == before


def test_reschedule_of_a_ghost_is_unknown_and_changes_nothing(desk: Desk) -> None:
    desk.pending("a")
    desk.lose_record("a")
    before = desk.snapshot()
    assert desk.store.reschedule("a", "+5000", YEAR_MS).status == "unknown"
    assert desk.snapshot() == before


def test_reschedule_loses_to_a_claim_and_wins_before_it(desk: Desk) -> None:
    desk.ready("a", "b")
    claim = desk.store.claim(1, LEASE_MS)
    assert desk.store.reschedule("a", "+5000", YEAR_MS).status == "in_flight"
    assert desk.store.reschedule("b", "+5000", YEAR_MS).status == "rescheduled"
    assert desk.store.claim(9, LEASE_MS).leased == []
    assert desk.store.ack(claim.token, ["a"]).stale == []
    desk.check()
