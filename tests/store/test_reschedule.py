import pytest

from duebridge.errors import StoreError
from tests.store.desk import LEASE_MS, NOW_MS, YEAR_MS, Desk, envelope


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
