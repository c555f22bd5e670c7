import pytest

from tests.store.desk import LEASE_MS, Desk, envelope


def test_stats_of_an_empty_shard_are_zero(desk: Desk) -> None:
    stats = desk.store.stats()
    assert (stats.due, stats.oldest_due_at_ms, stats.journal_entries, stats.memories) == (
        0,
        -1,
        0,
        0,
    )
    assert stats.oldest_due_age_ms == 0
    assert stats.poll == desk.store.next()


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
