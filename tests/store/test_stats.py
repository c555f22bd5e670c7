import pytest

from tests.store.desk import DAY_MS, LEASE_MS, Desk, envelope


def test_stats_of_an_empty_shard_are_zero(desk: Desk) -> None:
    stats = desk.store.stats()
    assert stats == (desk.store.next(), 0, 0, 0, -1, 0, 0, 0, 0, -1)
    assert (stats.oldest_due_age_ms, stats.journal_lag) == (0, None)


def test_stats_change_nothing(desk: Desk) -> None:
    desk.suspect("a")
    desk.ready("b")
    before = desk.snapshot()
    desk.store.stats()
    assert desk.snapshot() == before


def test_stats_count_what_is_due_in_pending(desk: Desk) -> None:
    desk.pending(envelope("a", "1s"), envelope("b", "2s"), envelope("c", "3s"))
    desk.clock.advance(2000)
    stats = desk.store.stats()
    assert (stats.due, stats.poll.pending) == (2, 3)
    assert stats.oldest_due_age_ms == 1000


def test_stats_count_what_will_be_due_within_a_minute_and_five(desk: Desk) -> None:
    delays = ("60s", "60001ms", "300s", "300001ms")
    desk.pending(*(envelope(delay, delay) for delay in delays))
    stats = desk.store.stats()
    assert (stats.due, stats.due_within_60s, stats.due_within_300s) == (0, 1, 3)


@pytest.mark.parametrize("state", ["ready", "suspect", "retry"])
def test_stats_count_as_due_what_waits_to_be_delivered_now(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    desk.clock.advance(1000)
    stats = desk.store.stats()
    assert (stats.due, stats.due_within_60s, stats.due_within_300s) == (1, 1, 1)


@pytest.mark.parametrize("state", ["unack", "dead"])
def test_stats_count_not_as_due_what_nobody_may_claim(desk: Desk, state: str) -> None:
    desk.bring(state, "a")
    desk.clock.advance(1000)
    assert desk.store.stats().due_within_300s == 0


def test_stats_count_how_often_a_due_instant_was_given(desk: Desk) -> None:
    desk.dead("c")
    desk.pending("a")
    desk.schedule("a", envelope("a", body=b"other"), "b")
    assert desk.store.stats().scheduled == 3
    desk.schedule(envelope("b", body=b"other"), replace=True)
    desk.store.reschedule("a", "+5000", DAY_MS)
    desk.store.replay(["c"])
    assert desk.store.stats().scheduled == 6


@pytest.mark.parametrize("state", ["ready", "suspect"])
def test_stats_know_the_oldest_due_wherever_it_waits(desk: Desk, state: str) -> None:
    due = desk.clock() + 1000
    desk.bring(state, "a")
    desk.pending("b")
    desk.clock.advance(10_000)
    stats = desk.store.stats()
    assert stats.oldest_due_at_ms == due
    assert stats.oldest_due_age_ms == desk.clock() - due


def test_stats_of_what_is_not_yet_due_name_nothing(desk: Desk) -> None:
    desk.pending("a")
    assert desk.store.stats().oldest_due_at_ms == -1


def test_stats_count_the_journal_and_the_memories(desk: Desk) -> None:
    claim = desk.unack("a")
    desk.store.ack(claim.token, ["a"])
    desk.pending("b")
    desk.store.cancel("b")
    stats = desk.store.stats()
    assert (stats.journal_entries, stats.memories) == (4, 1)
    assert desk.clock() + LEASE_MS > stats.poll.now_ms
