import pytest

from duebridge.errors import RecordTooNew
from tests.store.conftest import Opened
from tests.store.desk import LEASE_MS, Desk, envelope


def test_shunt_leases_inside_dead(desk: Desk) -> None:
    claim = desk.shunt("a")
    assert desk.state_of("a") == "dead"
    assert desk.score_of("a", "dead") == desk.clock() + LEASE_MS
    (leased,) = claim.leased
    assert (leased.id, leased.content.body) == ("a", b"body of a")
    assert (leased.flight.shunting, leased.flight.attempt) == (True, 1)
    assert leased.flight.error_message == "too large"
    assert claim.poll.first_dead_ms == desk.clock() + LEASE_MS
    desk.check()


def test_shunt_gives_each_envelope_to_one_holder(desk: Desk) -> None:
    desk.shunt("a")
    before = desk.snapshot()
    claim = desk.store.shunt(10, LEASE_MS)
    assert (claim.token, claim.leased, claim.damaged) == (b"", [], [])
    assert desk.snapshot() == before


def test_shunt_takes_it_again_when_the_lease_is_over(desk: Desk) -> None:
    first = desk.shunt("a")
    desk.clock.advance(LEASE_MS - 1)
    assert desk.store.shunt(10, LEASE_MS).leased == []
    desk.clock.advance(1)
    second = desk.store.shunt(10, LEASE_MS)
    assert [each.id for each in second.leased] == ["a"]
    assert second.token != first.token
    desk.check()


def test_shunt_takes_the_earliest_first_and_no_more_than_asked(desk: Desk) -> None:
    desk.dead("a")
    desk.dead("b")
    desk.dead("c")
    assert [each.id for each in desk.store.shunt(2, LEASE_MS).leased] == ["a", "b"]


@pytest.mark.parametrize("limit", [0, -1])
def test_shunt_of_no_more_than_nothing_leases_nothing(desk: Desk, limit: int) -> None:
    desk.dead("a")
    before = desk.snapshot()
    assert desk.store.shunt(limit, LEASE_MS).leased == []
    assert desk.snapshot() == before


def test_shunt_takes_at_most_1000_and_no_more_bytes_than_asked(desk: Desk) -> None:
    desk.dead(*[f"{n:04d}" for n in range(600)])
    desk.dead(*[f"{n:04d}" for n in range(600, 1010)])
    largest = int(desk.client.hget(desk.key("meta"), "largest"))
    assert len(desk.store.shunt(5000, LEASE_MS, limit_bytes=3 * largest).leased) == 3
    assert len(desk.store.shunt(5000, LEASE_MS).leased) == 1000
    desk.check()


def test_shunt_of_what_expired_before_its_first_attempt(desk: Desk) -> None:
    desk.pending(envelope("a", expires="1001ms"))
    desk.clock.advance(1001)
    desk.claim_all()
    (leased,) = desk.store.shunt(1, LEASE_MS).leased
    assert (leased.id, leased.flight.attempt) == ("a", 0)
    desk.check()


def test_shunt_without_a_dead_letter_target_takes_nothing(open_desk: Opened) -> None:
    desk = open_desk(has_dead_letter=False)
    desk.dead("a")
    desk.clock.advance(10**9)
    assert desk.store.shunt(10, LEASE_MS).leased == []
    assert desk.state_of("a") == "dead"


def test_shunt_of_a_ghost_drops_it_and_leases_the_others(desk: Desk) -> None:
    desk.dead("a", "b")
    desk.lose_record("a")
    claim = desk.store.shunt(10, LEASE_MS)
    assert [each.id for each in claim.leased] == ["b"]
    assert desk.state_of("a") is None
    desk.check()


def test_shunt_of_a_newer_layout_hands_it_out_as_too_new(desk: Desk) -> None:
    desk.dead("a")
    desk.make_newer("a")
    (damaged,) = desk.store.shunt(10, LEASE_MS).damaged
    assert (damaged.id, type(damaged.error)) == ("a", RecordTooNew)


def test_shunt_never_counts_an_attempt_or_an_expiry(desk: Desk) -> None:
    desk.dead("a")
    for _ in range(6):
        (leased,) = desk.store.shunt(1, LEASE_MS).leased
        desk.clock.advance(LEASE_MS)
        assert desk.store.reclaim()[1] == 0
    assert (leased.flight.attempt, leased.flight.expiries) == (1, 0)
