import pytest

from duebridge.errors import StoreError
from tests.store.desk import LEASE_MS, NOT_MINE, Desk


def test_postpone_ends_the_lease_and_waits(desk: Desk) -> None:
    claim = desk.shunt("a", "b")
    settled = desk.store.postpone(claim.token, ["a"], 5000)
    assert (settled.stale, settled.poll.dead) == ([], 2)
    assert desk.score_of("a", "dead") == desk.clock() + 5000
    assert not desk.flight_of("a").shunting
    assert desk.flight_of("b").shunting
    desk.clock.advance(4999)
    assert desk.store.shunt(10, LEASE_MS).leased == []
    desk.clock.advance(1)
    assert [each.id for each in desk.store.shunt(10, LEASE_MS).leased] == ["a"]
    desk.check()


@pytest.mark.parametrize("token", [NOT_MINE, bytes(12), b""])
def test_postpone_with_a_strange_token_is_stale_and_changes_nothing(
    desk: Desk, token: bytes
) -> None:
    desk.shunt("a")
    desk.dead("b")
    before = desk.snapshot()
    assert desk.store.postpone(token, ["a", "b", "nobody"], 1).stale == ["a", "b", "nobody"]
    assert desk.snapshot() == before


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "retry", "dead"])
def test_postpone_with_zeros_for_a_token_changes_nothing_that_nobody_holds(
    desk: Desk, state: str
) -> None:
    desk.bring(state, "a")
    before = desk.snapshot()
    assert desk.store.postpone(bytes(12), ["a"], 1).stale == ["a"]
    assert desk.snapshot() == before


def test_postpone_twice_is_stale(desk: Desk) -> None:
    claim = desk.shunt("a")
    desk.store.postpone(claim.token, ["a"], 5000)
    before = desk.snapshot()
    assert desk.store.postpone(claim.token, ["a"], 1).stale == ["a"]
    assert desk.snapshot() == before


def test_postpone_after_another_shunt_leaves_its_holder_alone(desk: Desk) -> None:
    first = desk.shunt("a")
    desk.clock.advance(LEASE_MS)
    second = desk.store.shunt(1, LEASE_MS)
    before = desk.snapshot()
    assert desk.store.postpone(first.token, ["a"], 1).stale == ["a"]
    assert desk.snapshot() == before
    assert desk.store.ack(second.token, ["a"], shunted=True).stale == []


def test_postpone_after_a_replay_is_stale(desk: Desk) -> None:
    claim = desk.shunt("a")
    desk.clock.advance(LEASE_MS)
    assert desk.store.replay(["a"]) == ["replayed"]
    before = desk.snapshot()
    assert desk.store.postpone(claim.token, ["a"], 1).stale == ["a"]
    assert desk.snapshot() == before


def test_postpone_of_1000_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    ids = [f"{n:04d}" for n in range(1000)]
    claim = desk.shunt(*ids)
    before = desk.snapshot()
    with pytest.raises(StoreError, match="LIMIT"):
        desk.store.postpone(claim.token, [*ids, "x"], 1)
    assert desk.snapshot() == before
    assert desk.store.postpone(claim.token, ids, 10).stale == []
    desk.check()
