"""The lease of a route's cold tier: taken of all shards or of none, renewed, lost, given back."""

import threading
from collections.abc import Callable

import pytest

from duebridge.errors import JobFailed, StoreError, StoreUnavailable
from duebridge.store.cold.lease import ColdLease
from duebridge.store.wire.replies import OccupyReply
from tests.store.cold.cold_desk import demoted, hydrate
from tests.store.conftest import Opened
from tests.support.desk import NOW_MS, YEAR_MS, Desk

LEASE_MS = 60_000


class Pauses:
    """Stands for the pauses of who waits for a lease: what happens meanwhile."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.meanwhile, self.count = meanwhile, 0

    def wait(self, _: float) -> bool:
        self.count += 1
        self.meanwhile()
        return False


@pytest.fixture
def desks(open_desk: Opened) -> list[Desk]:
    """Two shards."""
    return [open_desk(cold_tier_ms=YEAR_MS) for _ in range(2)]


def lease(desks: list[Desk], job: str, meanwhile: Callable[[], None] = lambda: None) -> ColdLease:
    made = ColdLease([desk.store for desk in desks], job, LEASE_MS)
    made._ended = Pauses(meanwhile)
    return made


def advance(desks: list[Desk], ms: int) -> None:
    for desk in desks:
        desk.clock.advance(ms)


def holders(desks: list[Desk]) -> list[bool]:
    return [desk.client.hexists(desk.key("meta"), "cold_lease") for desk in desks]


def test_take_of_what_a_live_job_has_fails_and_says_who_has_it_since_when(
    desks: list[Desk],
) -> None:
    first = lease(desks[1:], "demote")
    first.take()

    def meanwhile() -> None:
        advance(desks, LEASE_MS // 4)
        first.check()

    second = lease(desks, "hydrate", meanwhile)
    expected = (
        r"route route: its cold tier is in use: demote on .* has it since 2023-11-14T22:13:20"
    )
    with pytest.raises(JobFailed, match=expected):
        second.take()
    assert holders(desks) == [False, True], "what it took before is free again"
    first.check()


def test_take_waits_for_the_end_of_a_killed_job(desks: list[Desk]) -> None:
    lease(desks, "demote").take()
    second = lease(desks, "hydrate", lambda: advance(desks, LEASE_MS // 4))
    second.take()
    assert second._ended.count == 4
    second.check()


def test_take_with_patience_waits_for_a_live_job(desks: list[Desk]) -> None:
    first, pauses = lease(desks, "hydrate"), []
    first.take()

    def meanwhile() -> None:
        pauses.append(advance(desks, LEASE_MS // 2))
        first.give_back() if len(pauses) == 6 else first.check() if len(pauses) < 6 else None

    lease(desks, "schedule", meanwhile).take(wait_ms=10 * LEASE_MS)
    assert len(pauses) == 6


def test_check_after_another_job_came_fails_for_good(desks: list[Desk]) -> None:
    first, second = lease(desks, "hydrate"), lease(desks, "demote")
    first.take()
    advance(desks, LEASE_MS)
    second.take()
    for call in (first.check, first.turn, first.check):
        with pytest.raises(JobFailed, match=r"ran out: demote on .* has it since"):
            call()
    second.give_back()
    with pytest.raises(JobFailed):
        first.check()


def test_turn_refuses_what_the_token_of_before_still_sends(desks: list[Desk]) -> None:
    held = lease(desks, "hydrate")
    held.take()
    row, before = demoted(desks[0], "a"), held.token
    held.turn()
    with pytest.raises(StoreError, match="HELD"):
        hydrate(desks[0], row, before)
    assert hydrate(desks[0], row, held.token) == "accepted"


def test_held_lease_is_renewed_by_its_thread_and_given_back(
    desks: list[Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own clock; the end of the body waits for two renewals."""
    stores = [desk.again(now_ms=None) for desk in desks]
    renewed, calls = threading.Event(), []
    real = ColdLease.check

    def check(self: ColdLease) -> None:
        calls.append(self)
        if len(calls) == 1:
            raise StoreUnavailable("away for a moment")
        real(self)
        renewed.set()

    monkeypatch.setattr(ColdLease, "check", check)
    with ColdLease.held(stores, "hydrate", lease_ms=300):
        assert renewed.wait(30)
        assert holders(desks) == [True, True]
    assert holders(desks) == [False, False]


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
