"""Readers of a journal over renewals: who was ahead has a gap, others have none."""

import pytest

from duebridge.admin.events import GAP, EventReader
from duebridge.store.journal import Journal
from duebridge.store.numbering import Jump, Numbering
from tests.support.desk import Desk


@pytest.fixture
def journal(desk: Desk) -> Journal:
    return Journal(desk.connection, desk.shard)


def kinds(reader: EventReader) -> list[tuple[str, str, int]]:
    return [(each.kind, each.id, each.lost_entries) for each in reader.new()]


def lose(desk: Desk, count: int) -> None:
    """Let the server lose the newest entries, of one envelope each, and be another one."""
    desk.is_whole = False
    _, last = desk.counters()
    desk.client.xdel(desk.key("journal"), *[f"{last - n}-0" for n in range(count)])
    desk.client.hset(desk.key("meta"), "journal_sequence", last - count)
    desk.fail_over()


def test_reader_behind_the_failover_has_no_gap(desk: Desk, journal: Journal) -> None:
    desk.pending("a")
    reader, late = EventReader([journal]), EventReader([journal])
    assert kinds(reader) == [("accepted", "a", 0)]
    desk.pending("b")
    desk.fail_over()
    desk.pending("c")
    assert kinds(reader) == [("accepted", "b", 0), ("accepted", "c", 0)]
    assert [each[0] for each in kinds(late)] == ["accepted"] * 3
    assert kinds(reader) == []


@pytest.mark.parametrize("looks_in_between", [False, True])
def test_reader_that_was_ahead_has_a_gap_of_what_the_store_lost(
    desk: Desk, journal: Journal, looks_in_between: bool
) -> None:
    desk.pending("a")
    desk.pending("b")
    desk.pending("c")
    reader = EventReader([journal])
    assert len(kinds(reader)) == 3
    lose(desk, 2)
    assert journal.awaits_renewal()
    if looks_in_between:
        assert kinds(reader) == []
    desk.store.cancel("a")
    assert not journal.awaits_renewal()
    assert kinds(reader) == [(GAP, "", 2), ("cancelled", "a", 0)]
    desk.fail_over()
    desk.pending("d")
    assert kinds(reader) == [("accepted", "d", 0)]


def test_reader_of_what_the_cap_cut_counts_no_skipped_number(desk: Desk, journal: Journal) -> None:
    reader = EventReader([journal])
    for each in "abc":
        desk.pending(each)
    desk.fail_over()
    for each in "def":
        desk.pending(each)
    entries = desk.entries()
    desk.is_whole = False
    desk.client.xdel(desk.key("journal"), *[f"{each.sequence}-0" for each in entries[:5]])
    assert kinds(reader) == [(GAP, "", 5), ("accepted", "e", 0), ("accepted", "f", 0)]


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_seek_at_a_renewal_finds_no_gap_that_is_none(
    desk: Desk, journal: Journal, cut: int
) -> None:
    desk.pending("a")
    desk.pending("b")
    began_ms = desk.clock()
    desk.clock.advance(10)
    desk.fail_over()
    desk.pending("c")
    entries = desk.entries()
    if cut:
        desk.is_whole = False
        desk.client.xdel(desk.key("journal"), *[f"{each.sequence}-0" for each in entries[:cut]])
    for seek in (lambda it: it.go_to_newest(1), lambda it: it.go_to_instant(began_ms + 1)):
        reader = EventReader([journal])
        seek(reader)
        found = [each for each in kinds(reader) if each[0] != GAP]
        assert found == [("accepted", "c", 0)]
    if cut <= 2:
        reader.go_to_newest(1)
        assert kinds(reader) == [("accepted", "c", 0)]
    assert journal.first() == [1, 2, 3, entries[3].sequence][cut]


@pytest.mark.parametrize("lost", [0, 2])
def test_seek_to_an_instant_before_the_clock_went_back_misses_no_entry(
    desk: Desk, journal: Journal, lost: int
) -> None:
    began_ms = desk.clock()
    for name in "abcd":
        desk.pending(name)
        desk.clock.advance(10)
    if lost:
        lose(desk, lost)
    else:
        desk.fail_over()
    desk.clock.advance(-1000)  # the clock of the other server
    for number in range(12):
        desk.pending(f"new-{number}")
        desk.clock.advance(10)
    reader = EventReader([journal])
    for since_ms, name in ((10, "b"), (0, "a"), (-100, "a")):
        reader.go_to_instant(began_ms + since_ms)
        assert kinds(reader)[0] == ("accepted", name, 0)
    reader.go_to_instant(began_ms + 100)
    assert not kinds(reader)


def test_journal_lag_and_left_count_no_skipped_number(desk: Desk, journal: Journal) -> None:
    for each in "abc":
        desk.pending(each)
    journal.note_kept(2)
    desk.fail_over()
    desk.pending("d")
    assert desk.store.stats().journal_lag == 3  # c, renewed, d
    assert desk.store.stats().journal_left is None
    journal.note_kept(desk.entries()[-2].sequence)
    assert desk.store.stats().journal_lag == 1


@pytest.mark.parametrize(
    ("after", "until", "spans", "lost"),
    [
        (0, 5, [(0, 5)], 0),
        (0, 10, [(0, 10)], 0),
        (0, 100, [(0, 10), (99, 100)], 0),
        (3, 150, [(3, 10), (99, 120), (149, 150)], 0),
        (10, 100, [(99, 100)], 0),
        (13, 100, [(99, 100)], 3),
        (13, 160, [(99, 120), (149, 160)], 3),
        (100, 120, [(100, 120)], 0),
        (125, 155, [(149, 155)], 5),
        (150, 155, [(150, 155)], 0),
        (155, 155, [], 0),
    ],
)
def test_numbering_knows_what_was_skipped_and_what_was_lost(
    after: int, until: int, spans: list[tuple[int, int]], lost: int
) -> None:
    numbering = Numbering.of(b"10:100 120:150")
    assert numbering.jumps == (Jump(10, 100), Jump(120, 150))
    assert [tuple(each) for each in numbering.spans(after, until)] == spans
    assert numbering.lost(after, until) == lost
    assert numbering.kept(after) == max(0, after - numbering.lost(after, 1000))
    numbers = [number for start, end in spans for number in range(start + 1, end + 1)]
    assert numbering.count(after, until) == len(numbers)
    for count, number in enumerate(numbers, 1):
        assert numbering.advanced(after, until, count) == number
    assert numbering.advanced(after, until, 0) == after
