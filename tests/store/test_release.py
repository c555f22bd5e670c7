import pytest

from duebridge.errors import StoreError
from tests.store.desk import LEASE_MS, NOT_MINE, Desk


def test_release_gives_back_at_once_and_counts_nothing(desk: Desk) -> None:
    due = desk.clock() + 1000
    claim = desk.unack("a", "b")
    settled = desk.store.release(claim.token, ["a", "b"])
    assert (settled.stale, settled.poll.ready, settled.poll.unack) == ([], 2, 0)
    assert desk.score_of("a", "ready") == due
    flight = desk.flight_of("a")
    assert (flight.attempt, flight.failures, flight.retries, flight.expiries) == (1, 0, 0, 0)
    assert not flight.unsure
    desk.check()


def test_release_is_no_delivery_so_that_a_cancel_is_certain(desk: Desk) -> None:
    claim = desk.unack("a")
    desk.store.release(claim.token, ["a"])
    assert desk.store.cancel("a") == "cancelled"


def test_release_of_a_single_claim_goes_back_among_the_suspects(desk: Desk) -> None:
    desk.suspect("a")
    claim = desk.store.claim(1, LEASE_MS, alone=True)
    assert desk.store.release(claim.token, ["a"]).stale == []
    assert desk.state_of("a") == "suspect"
    desk.check()


def test_release_of_a_marked_one_removes_it_as_cancelled(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    desk.store.cancel("a")
    desk.store.release(claim.token, ["a", "b"])
    assert (desk.state_of("a"), desk.state_of("b")) == (None, "ready")
    assert desk.journal()[-1] == ("cancelled", ["a"])
    desk.check()


@pytest.mark.parametrize("token", [NOT_MINE, bytes(12), b""])
def test_release_with_a_strange_token_is_stale_and_changes_nothing(
    desk: Desk, token: bytes
) -> None:
    desk.unack("a")
    before = desk.snapshot()
    assert desk.store.release(token, ["a", "nobody"]).stale == ["a", "nobody"]
    assert desk.snapshot() == before


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "retry", "dead"])
def test_release_with_zeros_for_a_token_changes_nothing_that_nobody_holds(
    desk: Desk, state: str
) -> None:
    desk.bring(state, "a")
    before = desk.snapshot()
    assert desk.store.release(bytes(12), ["a"]).stale == ["a"]
    assert desk.snapshot() == before


def test_release_twice_is_stale_even_after_another_claim(desk: Desk) -> None:
    first = desk.unack("a")
    desk.store.release(first.token, ["a"])
    before = desk.snapshot()
    assert desk.store.release(first.token, ["a"]).stale == ["a"]
    assert desk.snapshot() == before
    desk.store.claim(1, LEASE_MS)
    before = desk.snapshot()
    assert desk.store.release(first.token, ["a"]).stale == ["a"]
    assert desk.snapshot() == before


def test_release_of_1000_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    ids = [f"{n:04d}" for n in range(1000)]
    claim = desk.unack(*ids)
    before = desk.snapshot()
    with pytest.raises(StoreError, match="LIMIT"):
        desk.store.release(claim.token, [*ids, "x"])
    assert desk.snapshot() == before
    assert desk.store.release(claim.token, ids).stale == []
    desk.check()
