"""Kept: what an intake refused and its dead-letter target rejected is dead from the start."""

import pytest

from duebridge.errors import StoreError
from duebridge.ports.publisher import Reason
from duebridge.store.wire.transitions import KeptMessage
from tests.support.desk import LEASE_MS, NOW_MS, Desk, envelope, noted

ERROR = "EnvelopeError\nx-delay: no"


def refused(id: str, reason: Reason = Reason.TOO_LARGE) -> KeptMessage:
    return KeptMessage(envelope(id), reason, ERROR)


def test_keep_makes_dead_envelopes_that_a_shunt_sends(desk: Desk) -> None:
    assert desk.store.keep([refused("a"), refused("b")]) == 2

    desk.check()
    assert desk.score_of("a", "dead") == NOW_MS
    flight = desk.flight_of("a")
    assert (flight.reason, flight.error_message) == (Reason.TOO_LARGE, "x-delay: no")
    assert (flight.attempt, flight.failures, flight.unsure) == (0, 0, False)
    assert desk.store.shunt(9, LEASE_MS).ids == ["a", "b"]


def test_keep_on_a_route_without_dead_letters_keeps_for_good(desk: Desk) -> None:
    assert desk.again(has_dead_letter=False).keep([refused("a")]) == 1
    assert desk.score_of("a", "dead") == float("inf")


def test_keep_journals_the_acceptance_and_the_death(desk: Desk) -> None:
    desk.store.keep([refused("a")])
    assert desk.journal() == [("accepted", ["a"]), ("dead", ["a"])]
    assert noted(desk.last_entry()) == [("a", (NOW_MS, 0, Reason.TOO_LARGE))]


@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead"])
def test_keep_of_an_id_that_is_there_changes_nothing(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    with desk.unchanged():
        assert desk.store.keep([refused("a")]) == 0


def test_keep_of_one_id_twice_keeps_the_first(desk: Desk) -> None:
    assert desk.store.keep([refused("a"), refused("a", Reason.INVALID)]) == 1
    assert desk.flight_of("a").reason == Reason.TOO_LARGE


def test_keep_can_be_replayed_and_dropped(desk: Desk) -> None:
    desk.store.keep([refused("a"), refused("b")])
    assert desk.store.replay(["a"]) == ["replayed"]
    assert desk.store.drop(["b"]) == ["dropped"]
    desk.check()


def test_keep_of_1000_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    given = [refused(f"id-{number}") for number in range(1000)]
    with desk.unchanged(), pytest.raises(StoreError, match="at most 1000"):
        desk.store.keep([*given, refused("x")])
    assert desk.store.keep(given) == 1000
