import pytest

from duebridge.errors import StoreError
from duebridge.ports.publisher import Reason
from duebridge.store.transitions import Burial
from tests.store.conftest import Opened
from tests.store.desk import LEASE_MS, NOT_MINE, Desk


def burials(*ids: str, failed: bool = True, unsure: bool = False) -> list[Burial]:
    return [Burial(name, Reason.TOO_LARGE, failed, unsure, "E\ntoo large") for name in ids]


@pytest.mark.parametrize("reason", list(Reason))
def test_bury_keeps_why_in_flight_and_journal(desk: Desk, reason: Reason) -> None:
    due = desk.clock() + 1000
    desk.dead("a", reason=reason)
    flight = desk.flight_of("a")
    assert (flight.reason, flight.failures, flight.attempt) == (reason, 1, 1)
    assert (flight.error_class, flight.error_message) == ("E", "too large")
    assert flight.first_failed_at_ms == flight.last_failed_at_ms == desk.clock()
    entry = desk.last_entry()
    assert (entry.kind, entry.items) == ("dead", [("a", (due, 1, reason))])
    desk.check()


@pytest.mark.parametrize("has_dead_letter", [True, False])
def test_bury_waits_for_a_shunt_or_for_ever(open_desk: Opened, has_dead_letter: bool) -> None:
    desk = open_desk(has_dead_letter=has_dead_letter)
    desk.dead("a")
    assert desk.score_of("a", "dead") == (desk.clock() if has_dead_letter else float("inf"))
    assert len(desk.store.shunt(1, LEASE_MS).leased) == has_dead_letter
    entry = desk.store.get("a")
    assert entry is not None
    assert (entry.score_ms == -1) == (not has_dead_letter)


def test_bury_counts_and_doubts_only_when_told(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    desk.store.bury(claim.token, burials("a", failed=False) + burials("b", unsure=True))
    assert [desk.flight_of(name).failures for name in "ab"] == [0, 1]
    assert [desk.flight_of(name).unsure for name in "ab"] == [False, True]


def test_bury_of_a_marked_one_removes_it_as_cancelled(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    desk.store.cancel("a")
    assert desk.store.bury(claim.token, burials("a", "b")).stale == []
    assert (desk.state_of("a"), desk.state_of("b")) == (None, "dead")
    assert desk.journal()[-2:] == [("dead", ["b"]), ("cancelled", ["a"])]
    desk.check()


@pytest.mark.parametrize("token", [NOT_MINE, bytes(12), b""])
def test_bury_with_a_strange_token_is_stale_and_changes_nothing(desk: Desk, token: bytes) -> None:
    desk.unack("a")
    before = desk.snapshot()
    assert desk.store.bury(token, burials("a", "nobody")).stale == ["a", "nobody"]
    assert desk.snapshot() == before


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "retry", "dead"])
def test_bury_with_zeros_for_a_token_changes_nothing_that_nobody_holds(
    desk: Desk, state: str
) -> None:
    desk.bring(state, "a")
    before = desk.snapshot()
    assert desk.store.bury(bytes(12), burials("a")).stale == ["a"]
    assert desk.snapshot() == before


def test_bury_twice_is_stale_and_counts_once(desk: Desk) -> None:
    claim = desk.unack("a")
    desk.store.bury(claim.token, burials("a"))
    before = desk.snapshot()
    assert desk.store.bury(claim.token, burials("a")).stale == ["a"]
    assert desk.snapshot() == before


def test_bury_after_reclaim_is_stale(desk: Desk) -> None:
    claim = desk.unack("a")
    desk.run_out()
    before = desk.snapshot()
    assert desk.store.bury(claim.token, burials("a")).stale == ["a"]
    assert desk.snapshot() == before


def test_bury_of_1000_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    ids = [f"{n:04d}" for n in range(1000)]
    claim = desk.unack(*ids)
    before = desk.snapshot()
    with pytest.raises(StoreError, match="LIMIT"):
        desk.store.bury(claim.token, burials(*ids, "x"))
    assert desk.snapshot() == before
    assert desk.store.bury(claim.token, burials(*ids)).stale == []
    desk.check()
