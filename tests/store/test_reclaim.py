import pytest

from duebridge.ports.publisher import Reason
from tests.store.conftest import Opened
from tests.store.desk import LEASE_MS, Desk, envelope


def test_reclaim_takes_back_only_what_ran_out(desk: Desk) -> None:
    due = desk.clock() + 1000
    desk.unack("a")
    desk.unack("b")
    desk.clock.advance(LEASE_MS - 1000)
    poll, reclaimed, poisoned = desk.store.reclaim()
    assert (reclaimed, poisoned, poll.ready, poll.unack) == (1, 0, 1, 1)
    assert desk.score_of("a", "ready") == due
    assert desk.state_of("b") == "unack"
    desk.check()


def test_reclaim_one_ms_early_changes_nothing(desk: Desk) -> None:
    desk.unack("a")
    desk.clock.advance(LEASE_MS - 1)
    before = desk.snapshot()
    assert desk.store.reclaim()[1] == 0
    assert desk.snapshot() == before


def test_reclaim_counts_an_expiry_and_no_failure(desk: Desk) -> None:
    desk.unack("a")
    desk.run_out()
    flight = desk.flight_of("a")
    assert (flight.expiries, flight.failures, flight.retries, flight.singles) == (1, 0, 0, 0)
    assert flight.unsure, "its delivery may have been made"


def test_reclaim_blames_nobody_when_the_store_was_away(desk: Desk) -> None:
    desk.unack("a")
    for _ in range(8):
        poll = desk.run_out(counted=False)
        assert (poll.ready, poll.suspect) == (1, 0)
        desk.store.claim(1, LEASE_MS)
    flight = desk.flight_of("a")
    assert (flight.expiries, flight.unsure) == (0, True)


def test_reclaim_twice_makes_a_suspect(desk: Desk) -> None:
    due = desk.clock() + 1000
    desk.suspect("a")
    assert desk.state_of("a") == "suspect"
    assert desk.score_of("a", "suspect") == due
    desk.check()


def test_reclaim_of_a_crash_burns_no_retry_of_what_was_leased_beside(desk: Desk) -> None:
    ids = [f"{n:03d}" for n in range(200)]
    desk.unack(*ids)
    for _ in range(9):
        desk.run_out()
        desk.store.claim(1000, LEASE_MS)
        desk.store.claim(1, LEASE_MS, alone=True)
    desk.run_out()
    flights = [desk.flight_of(name) for name in ids]
    assert {each.failures for each in flights} == {0}
    assert {each.retries for each in flights} == {0}
    poisoned = [name for name in ids if desk.state_of(name) == "dead"]
    assert poisoned in ([], ["000"]), "only what was claimed alone may be poison"
    desk.check()


@pytest.mark.parametrize("has_dead_letter", [True, False])
def test_reclaim_buries_poison_after_its_single_claims(
    open_desk: Opened, has_dead_letter: bool
) -> None:
    desk = open_desk(has_dead_letter=has_dead_letter)
    desk.suspect("a")
    for single in range(1, 4):
        assert desk.state_of("a") == "suspect"
        assert len(desk.store.claim(1, LEASE_MS, alone=True).leased) == 1
        poll = desk.run_out(poison=3)
        assert desk.flight_of("a").singles == single
    assert (poll.dead, poll.suspect, poll.unack) == (1, 0, 0)
    assert desk.flight_of("a").reason == Reason.POISON
    assert desk.score_of("a", "dead") == (desk.clock() if has_dead_letter else float("inf"))
    kind, ids = desk.journal()[-1]
    assert (kind, ids) == ("dead", ["a"])
    assert desk.last_entry().items[0][1].reason == Reason.POISON
    desk.check()


def test_reclaim_of_a_newer_layout_never_buries_it(desk: Desk) -> None:
    desk.suspect("a")
    desk.make_newer("a")
    for _ in range(7):
        assert len(desk.store.claim(1, LEASE_MS, alone=True).damaged) == 1
        desk.run_out(poison=2)
    assert desk.state_of("a") == "suspect"
    desk.check()


def test_reclaim_of_a_marked_one_removes_it_as_cancelled(desk: Desk) -> None:
    desk.unack("a", "b")
    desk.store.cancel("a")
    assert desk.run_out().ready == 1
    assert (desk.state_of("a"), desk.state_of("b")) == (None, "ready")
    assert desk.journal()[-1] == ("cancelled", ["a"])
    desk.check()


@pytest.mark.parametrize("limit", [0, -1, 2])
def test_reclaim_takes_no_more_than_asked(desk: Desk, limit: int) -> None:
    desk.unack("a", "b", "c")
    desk.clock.advance(LEASE_MS)
    assert desk.store.reclaim(limit)[1] == max(0, limit)
    desk.check()


def test_reclaim_takes_at_most_1000_a_call(desk: Desk) -> None:
    ids = [f"{n:04d}" for n in range(1100)]
    desk.unack(*ids[:550])
    desk.unack(*ids[550:])
    desk.clock.advance(LEASE_MS)
    assert [desk.store.reclaim(5000)[1] for _ in "abc"] == [1000, 100, 0]
    desk.check()


def test_reclaim_of_a_lease_without_a_flight_gives_it_back(desk: Desk) -> None:
    desk.unack("a")
    desk.client.hdel(desk.key("flight"), "a")
    assert desk.run_out().ready == 1
    assert [each.id for each in desk.store.claim(1, LEASE_MS).leased] == ["a"]
    desk.check()


def test_reclaim_of_a_ghost_ends_in_nothing(desk: Desk) -> None:
    desk.unack("a", "b")
    desk.lose_record("a")
    desk.run_out()
    assert [each.id for each in desk.store.claim(9, LEASE_MS).leased] == ["b"]
    assert desk.state_of("a") is None
    desk.check()


def test_reclaim_after_a_retry_goes_back_by_its_due(desk: Desk) -> None:
    due = desk.clock() + 1000
    desk.retry(envelope("a"))
    desk.clock.advance(1000)
    desk.claim_all()
    desk.run_out()
    assert desk.score_of("a", "ready") == due


def test_reclaim_tells_how_many_of_all_were_poison(desk: Desk) -> None:
    desk.suspect("a")
    desk.unack("b")
    desk.store.claim(1, LEASE_MS, alone=True)
    desk.clock.advance(LEASE_MS)
    assert desk.store.reclaim(poison=1)[1:] == (2, 1)
