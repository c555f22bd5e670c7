import pytest

from duebridge.ports.publisher import Reason
from duebridge.store.transitions import Burial
from tests.store.desk import LEASE_MS, YEAR_MS, Desk, envelope


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
        desk.store.bury(claim.token, [Burial("a", Reason.INVALID, True, False, "")])
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
