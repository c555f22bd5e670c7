import pytest

from duebridge.errors import StoreError
from tests.store.desk import LEASE_MS, Desk


def test_drop_deletes_the_dead_for_good(desk: Desk) -> None:
    due = desk.clock() + 1000
    desk.dead("a", "b")
    assert desk.store.drop(["a", "b"]) == ["dropped", "dropped"]
    assert {name for name, value in desk.check().items() if value} == {"meta", "journal"}
    entry = desk.last_entry()
    assert (entry.kind, entry.items[0]) == ("dropped", ("a", (due, 1, None)))


def test_drop_refuses_while_a_shunt_holds_it(desk: Desk) -> None:
    claim = desk.shunt("a")
    desk.clock.advance(LEASE_MS - 1)
    before = desk.snapshot()
    assert desk.store.drop(["a"]) == ["in_flight"]
    assert desk.snapshot() == before
    desk.clock.advance(1)
    assert desk.store.drop(["a"]) == ["dropped"]
    before = desk.snapshot()
    assert desk.store.ack(claim.token, ["a"], shunted=True).stale == ["a"]
    assert desk.snapshot() == before


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "unack", "retry"])
def test_drop_of_the_living_is_unknown_and_changes_nothing(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    before = desk.snapshot()
    assert desk.store.drop(["a", "nobody"]) == ["unknown", "unknown"]
    assert desk.snapshot() == before


def test_drop_twice_in_one_call_drops_once(desk: Desk) -> None:
    desk.dead("a")
    assert desk.store.drop(["a", "a"]) == ["dropped", "unknown"]
    assert desk.journal()[-1] == ("dropped", ["a"])


def test_drop_of_a_ghost_clears_it_away(desk: Desk) -> None:
    desk.dead("a")
    desk.lose_record("a")
    assert desk.store.drop(["a"]) == ["dropped"]
    desk.check()


def test_drop_of_1000_is_one_step_and_1001_is_refused(desk: Desk) -> None:
    ids = [f"{n:04d}" for n in range(1000)]
    desk.dead(*ids)
    before = desk.snapshot()
    with pytest.raises(StoreError, match="LIMIT"):
        desk.store.drop([*ids, "x"])
    assert desk.snapshot() == before
    assert desk.store.drop(ids) == ["dropped"] * 1000
    desk.check()
