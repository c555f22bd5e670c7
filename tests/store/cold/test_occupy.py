"""One job at a time has the lease of a cold tier; others learn who has it."""

from duebridge.store.wire.replies import OccupyReply
from tests.support.desk import NOW_MS, Desk

LEASE_MS = 60_000


def test_occupy_of_a_held_tier_changes_nothing_and_says_who_has_it(desk: Desk) -> None:
    taken = OccupyReply(NOW_MS, 1, b"hydrate on one", NOW_MS, NOW_MS + LEASE_MS)
    assert desk.store.occupy("A", LEASE_MS, "hydrate on one") == taken
    desk.clock.advance(LEASE_MS - 1)
    with desk.unchanged():
        answer = desk.store.occupy("B", LEASE_MS, "demote on two")
    assert answer == (NOW_MS + LEASE_MS - 1, 0, *taken[2:])


def test_occupy_after_the_lease_ran_out_takes_it_and_its_holder_never_renews(desk: Desk) -> None:
    desk.store.occupy("A", LEASE_MS, "one")
    desk.clock.advance(LEASE_MS)
    assert desk.store.occupy("B", LEASE_MS, "two").did
    assert not desk.store.occupy("A2", LEASE_MS, "one", "A").did
    assert desk.store.vacate("B")
    with desk.unchanged():
        assert not desk.store.occupy("A2", LEASE_MS, "one", "A").did


def test_occupy_again_renews_late_if_nobody_came_and_repeated_answers_the_same(desk: Desk) -> None:
    for _ in range(2):
        assert desk.store.occupy("A", LEASE_MS, "one").did
    desk.clock.advance(2 * LEASE_MS)
    for _ in range(2):
        answer = desk.store.occupy("A2", LEASE_MS, "one", "A")
        assert (answer.did, answer.since_ms) == (1, NOW_MS)
    assert not desk.store.occupy("A3", LEASE_MS, "one", "A").did, "that token is over"


def test_vacate_by_another_changes_nothing(desk: Desk) -> None:
    desk.store.occupy("A", LEASE_MS, "one")
    with desk.unchanged():
        assert not desk.store.vacate("B")
    assert desk.store.vacate("A")
    assert not desk.store.vacate("A")
