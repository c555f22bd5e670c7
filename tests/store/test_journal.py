"""The journal: dense sequence, running total, a cap, one entry a batch."""

import pytest

from tests.store.conftest import Opened
from tests.store.desk import Desk


def test_journal_numbers_are_dense_and_totals_run(desk: Desk) -> None:
    for n in range(20):
        desk.pending(f"{n}")
    entries = desk.entries()
    assert [each.sequence for each in entries] == list(range(1, 21))
    desk.check()


def test_journal_of_a_refused_or_stale_call_has_no_entry(desk: Desk) -> None:
    desk.unack("a")
    desk.schedule("a")
    desk.store.ack(b"no token", ["a"])
    desk.store.cancel("nobody")
    assert desk.journal() == [("accepted", ["a"])]


@pytest.fixture
def capped(open_desk: Opened) -> Desk:
    """A journal of at most 1,000 bytes."""
    return open_desk(journal_cap_bytes=1000)


def test_journal_stays_under_its_cap(capped: Desk) -> None:
    for n in range(100):
        capped.pending(f"id-{n:03d}")
        capped.check()
    entries = capped.entries()
    assert sum(each.size + 48 for each in entries) <= 1000
    assert entries[-1].sequence == 100
    assert len(entries) < 20


def test_journal_keeps_everything_up_to_its_cap(open_desk: Opened) -> None:
    wide = open_desk()
    for n in range(10):
        wide.pending(f"id-{n:03d}")
    exact = open_desk(journal_cap_bytes=wide.entries()[-1].total_bytes)
    for n in range(10):
        exact.pending(f"id-{n:03d}")
    assert len(exact.entries()) == 10
    exact.pending("id-010")
    assert [each.sequence for each in exact.entries()] == list(range(2, 12))
    exact.check()


def test_journal_drops_at_most_8_an_append(open_desk: Opened) -> None:
    desk = open_desk()
    for n in range(30):
        desk.pending(f"{n:02d}")
    desk.store = desk.again(journal_cap_bytes=1)
    lengths = []
    for n in range(30, 36):
        desk.pending(f"{n:02d}")
        lengths.append(len(desk.entries()))
        desk.check()
    assert lengths == [23, 16, 9, 2, 0, 0]


def test_journal_of_two_kinds_in_one_call_counts_both(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    desk.store.cancel("a")
    desk.put_back(claim)
    assert [kind for kind, _ in desk.journal()] == ["accepted", "retried", "cancelled"]
    desk.check()


def test_journal_knows_no_key_with_a_time_to_live(desk: Desk) -> None:
    desk.suspect("s")
    desk.dead("d")
    desk.retry("r", delay_ms=60_000)
    desk.unack("u")
    desk.ready("y")
    desk.pending("p", "c")
    desk.store.cancel("c")
    names = ("pending", "ready", "suspect", "unack", "retry", "dead", "envelopes", "flight")
    for name in (*names, "journal", "meta", "memory", "forget"):
        assert desk.client.pttl(desk.key(name)) == -1, f"{name} would expire before its id"
