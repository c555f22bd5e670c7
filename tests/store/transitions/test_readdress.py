"""Dead envelopes that waited for another dead-letter target are due once there is one."""

from collections.abc import Sequence

import pytest

from duebridge.store.wire.transitions import Postponement, ReaddressMode
from tests.store.conftest import Opened
from tests.support.desk import LEASE_MS, Desk, acks

FOR_EVER = 2**52
OTHER_TARGET_MS = 10_000  # lua/postpone.lua


def reject(desk: Desk, *ids: str, target: str = "t") -> None:
    """Have the target of the dead letters reject them for good."""
    claim = desk.store.shunt(1000, LEASE_MS)
    assert sorted(claim.ids) == sorted(ids)
    rejected = [Postponement(each, None, "E\ntoo large") for each in claim.ids]
    assert desk.store.postpone(claim.token, rejected, target).stale == []
    assert all((desk.score_of(each, "dead") or 0) >= FOR_EVER for each in ids)


def due(desk: Desk) -> Sequence[str]:
    """The dead letters that a shunt would send now; they stay so."""
    claim = desk.store.shunt(1000, LEASE_MS)
    back = [Postponement(each, 0) for each in claim.ids]
    assert desk.store.postpone(claim.token, back, "t").stale == []
    return sorted(claim.ids)


@pytest.fixture
def rejected(desk: Desk) -> Desk:
    """A shard whose target `t` rejects the letters of `a` and `b`."""
    desk.dead("a", "b")
    desk.store.readdress("t")
    reject(desk, "a", "b")
    return desk


def test_readdress_makes_due_what_had_no_target(open_desk: Opened) -> None:
    desk = open_desk(has_dead_letter=False)
    desk.dead("a", "b")
    desk.clock.advance(10 * LEASE_MS)
    assert desk.store.next().first_dead_ms == -1
    assert due(desk) == []
    assert desk.store.readdress("t") == 2
    assert (due(desk), desk.store.next().first_dead_ms) == (["a", "b"], desk.clock())


@pytest.mark.parametrize(("target", "mode"), [("u", "changed"), ("t", "asked")])
def test_readdress_to_another_target_or_when_asked_makes_due_what_was_rejected(
    rejected: Desk, target: str, mode: ReaddressMode
) -> None:
    assert rejected.store.readdress(target, mode=mode) == 2
    assert due(rejected) == ["a", "b"]


def test_stats_count_the_rejected_and_not_those_without_a_target(rejected: Desk) -> None:
    rejected.dead("c")
    assert (rejected.store.stats().rejected, rejected.store.stats().poll.dead) == (2, 3)


def test_readdress_of_the_same_target_leaves_the_rejected(rejected: Desk) -> None:
    for _ in range(3):
        rejected.clock.advance(LEASE_MS)
        assert rejected.store.readdress("t") == 0
        assert due(rejected) == []


@pytest.mark.parametrize("has_letter", [True, False])
def test_readdress_ends_although_the_new_target_rejects_too(
    open_desk: Opened, has_letter: bool
) -> None:
    desk = open_desk(has_dead_letter=has_letter)
    ids = [f"a{n:02d}" for n in range(20)]
    desk.dead(*ids)
    if has_letter:
        reject(desk, *ids)
    moves = 0
    while moved := desk.store.readdress("u", 3):
        moves += moved
        reject(desk, *due(desk), target="u")
        assert moves <= 20
    assert moves == 20
    assert due(desk) == []


def test_readdress_of_the_unaddressed_leaves_the_rejected_and_the_target(
    rejected: Desk, open_desk: Opened
) -> None:
    assert rejected.store.readdress("u", mode="unaddressed") == 0
    assert due(rejected) == []
    assert rejected.store.readdress("t") == 0
    desk = open_desk(has_dead_letter=False)
    desk.dead("a", "b")
    assert desk.store.readdress("t", mode="unaddressed") == 2
    assert due(desk) == ["a", "b"]


def test_rejection_by_a_target_that_was_left_meanwhile_keeps_nothing(desk: Desk) -> None:
    desk.dead("a", "b")
    desk.store.readdress("t")
    claim = desk.store.shunt(1000, LEASE_MS)
    assert desk.store.readdress("u") == 0
    desk.store.postpone(claim.token, [Postponement("a", None, "E\nno")], "t")
    desk.store.postpone(claim.token, [Postponement("b", None, "E\nno")], "u")
    assert due(desk) == []
    desk.clock.advance(OTHER_TARGET_MS)
    assert due(desk) == ["a"]


@pytest.mark.parametrize("limit", [1, 2, 1000, 5000])
def test_readdress_moves_by_pages_until_none_is_left(open_desk: Opened, limit: int) -> None:
    desk = open_desk(has_dead_letter=False)
    desk.dead("a", "b", "c")
    pages = [desk.store.readdress("t", limit) for _ in range(4)]
    assert pages == {1: [1, 1, 1, 0], 2: [2, 1, 0, 0]}.get(limit, [3, 0, 0, 0])


def test_readdress_cut_short_goes_on_with_another_worker(rejected: Desk) -> None:
    """The worker that began it is gone after a page."""
    assert rejected.store.readdress("u", 1) == 1
    assert rejected.again().readdress("u", 1) == 1
    assert rejected.again().readdress("u", 1) == 0


def test_readdress_leaves_a_running_shunt_and_the_waiting_alone(desk: Desk) -> None:
    claim = desk.shunt("a", "b")
    desk.store.postpone(claim.token, [Postponement("b", 5000, "E\nno")], "t")
    scores = [desk.score_of(each, "dead") for each in "ab"]
    assert desk.store.readdress("u") == 0
    assert [desk.score_of(each, "dead") for each in "ab"] == scores
    assert desk.store.ack(acks(claim.token, "a"), shunted=True).stale == []


@pytest.mark.parametrize(("end", "done"), [("replay", "replayed"), ("drop", "dropped")])
def test_end_of_a_rejected_one_needs_no_wait(rejected: Desk, end: str, done: str) -> None:
    assert getattr(rejected.store, end)(["a"]) == [done]
    assert rejected.store.readdress("u") == 1


def test_rejected_ones_are_listed_page_by_page(rejected: Desk) -> None:
    first = rejected.store.list("dead", limit=1)
    second = rejected.store.list("dead", limit=1, cursor=first.cursor)
    assert [each.id for page in (first, second) for each in page.entries] == ["a", "b"]
    assert rejected.store.next().first_dead_ms == -1
