"""The journal: what is written, in which order, how it is read and cut."""

from collections.abc import Callable

import pytest

from duebridge.admin.events import EnvelopeEvent, EventReader
from duebridge.errors import RecordDamaged
from duebridge.store.journal import PAGE, Journal, Note, read_entry
from duebridge.store.wire.transitions import SetAside
from tests.store.conftest import Opened
from tests.support.desk import NOW_MS, Desk, burial, retrying


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


BYTES_OF_FOUR = 300  # entries of one envelope, of some 70 bytes each


@pytest.fixture
def write(desk: Desk) -> Callable[[int], Journal]:
    """Return a writer of so many more entries, one a second, from number 1 on."""
    written = 0

    def write_entries(count: int) -> Journal:
        nonlocal written
        for _ in range(count):
            written += 1
            desk.pending(f"{written}")
            desk.clock.advance(1000)
        return Journal(desk.connection, desk.shard)

    return write_entries


def cut(desk: Desk) -> None:
    """Let the cap cut all but a few of the entries."""
    desk.store = desk.again(journal_cap_bytes=BYTES_OF_FOUR)


def sequences(journal: Journal, after: int = 0) -> list[int]:
    return [entry.sequence for entry in journal.read(after, journal.last())]


def test_read_over_many_pages_gives_each_entry_once(write: Callable[[int], Journal]) -> None:
    journal = write(2 * PAGE + 1)
    assert sequences(journal) == list(range(1, 2 * PAGE + 2))
    assert sequences(journal, PAGE - 1) == list(range(PAGE, 2 * PAGE + 2))
    assert [entry.sequence for entry in journal.read(3, 5)] == [4, 5]


def test_journal_never_written_has_no_last_and_no_entry(desk: Desk) -> None:
    journal = Journal(desk.connection, desk.shard)
    assert (journal.last(), sequences(journal)) == (0, [])
    assert (journal.before_newest(5), journal.before_instant(NOW_MS)) == (0, 0)
    assert list(EventReader([journal]).new()) == []


@pytest.mark.parametrize("count", [0, 1, PAGE, PAGE + 3, 3 * PAGE])
def test_before_newest_leaves_exactly_so_many_of_single_items(
    write: Callable[[int], Journal], count: int
) -> None:
    journal = write(2 * PAGE + 3)
    assert len(sequences(journal, journal.before_newest(count))) == min(count, 2 * PAGE + 3)


def test_before_newest_counts_items_and_not_entries(desk: Desk) -> None:
    desk.pending("a", "b", "c")
    desk.pending("d", "e", "f")
    journal = Journal(desk.connection, desk.shard)
    assert [journal.before_newest(count) for count in (1, 3, 4, 7)] == [1, 1, 0, 0]


@pytest.mark.parametrize("second", [0, 1, 7, 30, 39, 40])
def test_before_instant_is_behind_the_last_entry_before_it(
    write: Callable[[int], Journal], second: int
) -> None:
    journal = write(40)  # number n at second n - 1
    for off_ms in (0, -999):
        assert journal.before_instant(NOW_MS + 1000 * second + off_ms) == second


def test_before_instant_that_the_cap_has_cut_is_the_beginning(
    desk: Desk, write: Callable[[int], Journal]
) -> None:
    cut(desk)
    journal = write(40)
    assert journal.before_instant(NOW_MS + 30_000) == 0
    assert journal.before_instant(NOW_MS + 39_000) == 39


def test_events_new_yields_what_came_since_and_no_more(
    desk: Desk, write: Callable[[int], Journal]
) -> None:
    events = EventReader([write(2)])
    assert [event.id for event in events.new()] == ["1", "2"]
    assert list(events.new()) == []
    write(1)
    shard = desk.shard
    assert list(events.new()) == [
        EnvelopeEvent(
            "accepted", NOW_MS + 2000, shard.route, shard.number, "3", due_at_ms=NOW_MS + 3000
        )
    ]


def test_events_that_the_cap_cut_before_they_were_read_are_a_gap(
    desk: Desk, write: Callable[[int], Journal]
) -> None:
    events = EventReader([write(2)])
    assert len(list(events.new())) == 2
    cut(desk)
    write(20)
    gap, *rest = events.new()
    assert (gap.kind, gap.id, gap.at_ms) == ("gap", "", rest[0].at_ms)
    assert gap.lost_entries == 20 - len(rest) > 0
    assert [event.id for event in rest] == [str(number) for number in range(23 - len(rest), 23)]


def test_events_that_are_all_cut_are_one_gap(desk: Desk, write: Callable[[int], Journal]) -> None:
    events = EventReader([write(1)])
    assert len(list(events.new())) == 1
    desk.store = desk.again(journal_cap_bytes=1)
    write(3)
    (gap,) = events.new()
    assert (gap.kind, gap.lost_entries) == ("gap", 3)
    assert list(events.new()) == []


def test_events_of_two_shards_are_merged_by_time(open_desk: Opened) -> None:
    desks = [open_desk(), open_desk()]
    for second in range(20):
        desk = desks[second % 3 % 2]
        desk.clock.now_ms = NOW_MS + 1000 * second
        desk.pending(f"{second}")
    journals = [Journal(desk.connection, desk.shard) for desk in desks]
    assert [event.id for event in EventReader(journals).new()] == [str(n) for n in range(20)]
    events = EventReader(journals)
    events.go_to_newest(7)
    assert [event.id for event in events.newest(7)] == [str(n) for n in range(13, 20)]
    events.go_to_instant(NOW_MS + 15_000)
    assert [event.id for event in events.new()] == [str(n) for n in range(15, 20)]


def test_events_after_a_failover_that_lost_the_newest_go_on(
    desk: Desk, write: Callable[[int], Journal]
) -> None:
    events = EventReader([write(5)])
    assert len(list(events.new())) == 5
    desk.is_whole = False
    desk.client.hset(desk.key("meta"), "journal_sequence", 3)
    desk.client.delete(desk.key("journal"))
    assert list(events.new()) == []
    write(1)
    assert [event.id for event in events.new()] == ["6"]


def test_events_of_a_reason_show_its_word(desk: Desk) -> None:
    desk.dead("a")
    events = list(EventReader([Journal(desk.connection, desk.shard)]).new())
    assert [(event.kind, event.attempt, event.reason) for event in events] == [
        ("accepted", None, ""),
        ("dead", 1, "too_large"),
    ]


@pytest.mark.parametrize("packed", [b"", b"\x92\xa1a", b"\x92\xa1a\xa1b", b"\x91\xa1a", b"\xc0"])
def test_entry_that_cannot_be_read_is_named(desk: Desk, packed: bytes) -> None:
    desk.is_whole = False
    fields = {"k": "accepted", "t": NOW_MS, "b": 1, "i": packed}
    desk.client.xadd(desk.key("journal"), fields, id="7-0")
    with pytest.raises(RecordDamaged, match="journal entry 7"):
        list(Journal(desk.connection, desk.shard).read(0, 7))


def test_note_kept_tells_the_lag_and_never_goes_back(desk: Desk, write) -> None:
    journal = write(5)
    assert desk.store.stats().journal_lag is None
    journal.note_kept(3)
    assert desk.store.stats().journal_lag == 2
    journal.note_kept(1)
    assert desk.store.stats().journal_lag == 2
    journal.note_kept(9)  # of a store that was emptied since
    assert desk.store.stats().journal_lag == 0


def test_journal_left_is_what_may_be_written_before_the_cap_cuts_what_no_table_has(
    desk: Desk, write: Callable[[int], Journal]
) -> None:
    journal = write(5)
    journal.note_kept(3)
    assert desk.store.stats().journal_left is None  # nothing was cut yet
    cut(desk)
    write(1)
    assert sequences(journal) == [2, 3, 4, 5, 6]
    assert desk.store.stats().journal_left == 2
    write(2)
    assert sequences(journal)[0] == 4
    assert desk.store.stats().journal_left == 0
    write(1)
    assert desk.store.stats().journal_left == 0


def test_first_of_a_journal_is_the_oldest_entry_that_is_there(desk: Desk) -> None:
    journal = Journal(desk.connection, desk.shard)
    assert journal.first() == 1
    for name in "abc":
        desk.pending(name)
    assert journal.first() == 1
    desk.is_whole = False
    desk.client.xdel(desk.key("journal"), "1-0")
    assert journal.first() == 2
    desk.client.xdel(desk.key("journal"), "2-0", "3-0")
    assert journal.first() == 4


def last_note(desk: Desk) -> Note:
    ((_, note),) = desk.entries()[-1].items
    return note


def test_retried_note_has_the_class_of_the_error_and_the_next_try(desk: Desk) -> None:
    claim = desk.unack("a")
    failed = retrying("a", delay_ms=5_000, error="Refused\nby the queue")
    desk.store.retry(claim.token, [failed])
    note = last_note(desk)
    assert (note.error_class, note.next_at_ms) == ("Refused", desk.clock() + 5_000)
    assert (note.attempt, note.reason) == (1, None)


def test_retried_note_of_what_is_set_aside_has_both_and_of_what_was_not_tried_there_is_none(
    desk: Desk,
) -> None:
    claim = desk.unack("a", "b")
    aside = [SetAside(id="a", delay_ms=600, tag="12345678", clock="start", error="Missing\nno t")]
    aside.append(SetAside(id="b", delay_ms=600, tag="12345678", clock="start"))
    desk.store.set_aside(claim.token, aside)
    note = last_note(desk)
    assert (note.error_class, note.next_at_ms) == ("Missing", desk.clock() + 600)
    assert note.counted is False


@pytest.mark.parametrize(
    ("error", "kept"),
    [("TooLarge\nx", "TooLarge"), ("", ""), ("E" * 65, "E" * 64), ("\nx", ""), ("E", "E")],
)
def test_dead_note_has_the_class_of_the_error_bounded(desk: Desk, error: str, kept: str) -> None:
    claim = desk.unack("a")
    desk.store.bury(claim.token, [burial("a", error=error)])
    note = last_note(desk)
    assert (note.error_class, note.next_at_ms) == (kept, None)


def test_note_has_the_message_of_its_own_error_bounded(desk: Desk) -> None:
    errors = ["", "E\nsame", "F\nsame", "E\nother\nline", "E", "E\nsame", "E\nx" + "ä" * 100]
    claim = desk.unack(*(f"e{n}" for n in range(len(errors))))
    desk.store.retry(claim.token, [retrying(f"e{n}", error=each) for n, each in enumerate(errors)])
    entry = desk.entries()[-1]
    found = [note.error_message for _, note in entry.items]
    assert found == ["", "same", "same", "other\nline", "", "same", "x" + "ä" * 79]
    head = next(Journal(desk.connection, desk.shard).newest())
    assert (head.items, head.size) == (len(errors), entry.size)


def test_entry_without_a_message_has_no_field_for_it(desk: Desk) -> None:
    claim = desk.unack("a")
    desk.store.retry(claim.token, [retrying("a", error="E")])
    _, fields = desk.client.xrevrange(desk.key("journal"), count=1)[0]
    assert b"m" not in fields


def test_retried_entry_is_the_same_for_a_reader_that_knows_no_details(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    desk.store.retry(claim.token, [retrying(each, error="Refused\nx") for each in "ab"])
    stream_id, fields = desk.client.xrevrange(desk.key("journal"), count=1)[0]
    for each in (b"d", b"f", b"m"):
        del fields[each]
    entry = read_entry(stream_id, fields)
    assert [(name, note.reason, note.attempt) for name, note in entry.items] == [
        ("a", None, 1),
        ("b", None, 1),
    ]


def test_notes_of_failures_say_which_of_them_count(desk: Desk) -> None:
    claim = desk.unack("a", "b", "c", "d")
    desk.store.retry(claim.token, [retrying("a", failed=True), retrying("b", failed=False)])
    assert [note.counted for _, note in desk.entries()[-1].items] == [True, False]
    desk.store.bury(claim.token, [burial("c", failed=False), burial("d", failed=True)])
    assert [note.counted for _, note in desk.entries()[-1].items] == [False, True]
    assert [note.counted for _, note in desk.entries()[0].items] == [None] * 4
    stream_id, fields = desk.client.xrevrange(desk.key("journal"), count=1)[0]
    del fields[b"f"]
    assert [note.counted for _, note in read_entry(stream_id, fields).items] == [None, None]
