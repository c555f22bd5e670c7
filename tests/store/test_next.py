import pytest

from duebridge.store.poll import NONE
from tests.store.desk import LEASE_MS, NOW_MS, Desk, envelope


def test_next_of_an_empty_shard_says_that_there_is_nothing(desk: Desk) -> None:
    poll = desk.store.next()
    assert poll == (NOW_MS, 0, 0, 0, 0, 0, 0, *[NONE] * 8)
    assert not poll.is_held


def test_next_changes_nothing_and_makes_no_key(desk: Desk) -> None:
    desk.bring("unack", "a")
    before = desk.snapshot()
    desk.store.next()
    assert desk.snapshot() == before


@pytest.mark.parametrize("state", ["pending", "ready", "suspect", "unack", "retry", "dead"])
def test_next_counts_each_state_apart(desk: Desk, state: str) -> None:
    desk.bring(state, "a", "b")
    poll = desk.store.next()
    assert getattr(poll, state) == 2
    assert sum(poll[1:7]) == 2


def test_next_gives_the_first_score_of_each_structure(desk: Desk) -> None:
    desk.retry("r", delay_ms=5000)
    retry_at = desk.clock() + 5000
    desk.pending(envelope("p", "9s"), envelope("q", "7s"))
    first_pending = desk.clock() + 7000
    poll = desk.store.next()
    assert (poll.first_pending_ms, poll.first_retry_ms) == (first_pending, retry_at)
    desk.clock.advance(5000)
    claim = desk.claim_all()
    poll = desk.store.next()
    assert poll.first_unack_ms == desk.clock() + LEASE_MS
    assert [each.id for each in claim.leased] == ["r"]


def test_next_gives_the_first_suspect_and_dead(desk: Desk) -> None:
    due = desk.clock() + 1000
    desk.suspect("s")
    desk.dead("d")
    poll = desk.store.next()
    assert (poll.first_suspect_ms, poll.first_dead_ms) == (due, desk.clock())


def test_next_says_when_the_first_memory_may_go(desk: Desk) -> None:
    desk.pending("a")
    desk.store.cancel("a")
    assert desk.store.next().first_forget_ms == desk.clock() + 60_000


def test_next_of_dead_for_ever_gives_no_instant(open_desk) -> None:
    desk = open_desk(has_dead_letter=False)
    desk.dead("a")
    poll = desk.store.next()
    assert (poll.dead, poll.first_dead_ms) == (1, NONE)


def test_next_of_a_held_route_says_since_when(desk: Desk) -> None:
    claim = desk.unack("a")
    assert not desk.store.next().is_held
    desk.run("retry", claim.token, 1, 1, "a", 1000, 0, 0, "E\nno topic")
    poll = desk.store.next()
    assert (poll.is_held, poll.held_since_ms) == (True, desk.clock())
