"""How a shunt ends whose dead letter was not confirmed: later, at once, or never again."""

import pytest

from duebridge.store.wire.transitions import Postponement
from tests.support.desk import LEASE_MS, Desk

NO = "E\ntoo large"


@pytest.mark.parametrize(
    ("postponement", "letters", "error"),
    [
        (Postponement("a", 5000, NO), 1, NO),
        (Postponement("a", None, NO), 1, NO),
        (Postponement("a", 0), 0, ""),
    ],
)
def test_postpone_counts_a_try_and_keeps_why_the_envelope_died(
    desk: Desk, postponement: Postponement, letters: int, error: str
) -> None:
    claim = desk.shunt("a")
    before = desk.flight_of("a")
    desk.store.postpone(claim.token, [postponement], "t")
    flight = desk.flight_of("a")
    assert (flight.letters, flight.letter_error) == (letters, error)
    assert (flight.error_message, flight.reason) == (before.error_message, before.reason)
    assert (flight.failures, flight.attempt, flight.held_since_ms) == (1, 1, 0)


def test_postpone_counts_on_over_many_tries_and_a_replay_begins_anew(desk: Desk) -> None:
    desk.dead("a")
    for _ in range(3):
        claim = desk.store.shunt(1, LEASE_MS)
        assert desk.store.postpone(claim.token, [Postponement("a", 0, NO)], "t").stale == []
    assert desk.flight_of("a").letters == 3
    assert desk.store.replay(["a"]) == ["replayed"]
    assert (desk.flight_of("a").letters, desk.flight_of("a").letter_error) == (0, "")


def test_postpone_of_a_rejected_one_is_never_due_again(desk: Desk) -> None:
    claim = desk.shunt("a", "b")
    desk.store.postpone(claim.token, [Postponement("a", None, NO), Postponement("b", 0)], "t")
    assert desk.store.next().first_dead_ms == desk.clock()
    desk.clock.advance(365 * 86_400_000)
    assert desk.store.shunt(10, LEASE_MS).ids == ["b"]


def test_postpone_of_a_claim_is_stale(desk: Desk) -> None:
    claim = desk.unack("a")
    with desk.unchanged():
        assert desk.store.postpone(claim.token, [Postponement("a", None, NO)], "t").stale == ["a"]


def test_postpone_of_a_ghost_is_forgotten_by_the_next_shunt(desk: Desk) -> None:
    claim = desk.shunt("a", "b")
    desk.lose_record("a")
    desk.store.postpone(claim.token, [Postponement("a", 0), Postponement("b", 0)], "t")
    assert desk.store.shunt(10, LEASE_MS).ids == ["b"]
    assert (desk.state_of("a"), desk.flight_bytes("a")) == (None, None)
