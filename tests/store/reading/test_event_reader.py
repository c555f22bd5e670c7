"""A reader of events whose store fails half-way goes on behind the last event that it yielded."""

from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from duebridge.admin.events import EnvelopeEvent, EventReader
from duebridge.cli.commands import events as command
from duebridge.errors import StoreUnavailable
from duebridge.store.journal import PAGE, Journal
from duebridge.store.registry import Registry
from duebridge.store.server.connection import open_connection
from duebridge.store.wire.journal_entry import Fields
from tests.store.conftest import Opened
from tests.support.desk import Desk
from tests.support.servers import free_port


class FailingJournal(Journal):
    """A journal whose store goes away after so many entries of each reading."""

    entries_a_reading = 0

    def stored(self, after: int, until: int) -> Iterator[tuple[bytes, Fields]]:
        for read, entry in enumerate(super().stored(after, until)):
            if read == self.entries_a_reading:
                raise StoreUnavailable("gone")
            yield entry


def failing(desk: Desk, entries: int) -> FailingJournal:
    journal = FailingJournal(desk.connection, desk.shard)
    journal.entries_a_reading = entries
    return journal


def readings(reader: EventReader) -> Iterator[list[EnvelopeEvent]]:
    """Yield what each reading gives, until one has nothing."""
    found: list[EnvelopeEvent] = [EnvelopeEvent("", 0, "", 0)]
    while found:
        found = []
        with suppress(StoreUnavailable):
            for event in reader.new():
                found.append(event)
        yield found


def fill(desks: list[Desk]) -> None:
    """Write entries of three ids each, into both shards in turn, and cut the oldest of one."""
    for turn in range(PAGE + 2):
        desk = desks[turn % 2]
        desk.pending(*[f"{turn}-{each}" for each in "abc"])
        for each in desks:
            each.clock.advance(10)
    desks[0].is_whole = False
    desks[0].client.xdel(desks[0].key("journal"), "1-0")


@pytest.mark.parametrize("entries", [1, 2, 5])
def test_read_of_a_store_that_fails_between_entries_yields_each_event_once(
    open_desk: Opened, entries: int
) -> None:
    desks = [open_desk(), open_desk()]
    fill(desks)
    undisturbed = list(EventReader([Journal(each.connection, each.shard) for each in desks]).new())
    found = list(readings(EventReader([failing(each, entries) for each in desks])))
    assert len(found) > 2, "no reading failed"
    assert [event for reading in found for event in reading] == undisturbed


def test_follow_leaves_out_a_shard_that_stays_away_says_so_and_has_it_once_it_is_back(
    open_desk: Opened, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = open_desk(), open_desk()
    first.pending("a")
    second.pending("b")
    away, there = failing(first, 0), Journal(second.connection, second.shard)
    reader = EventReader([away, there])
    outage = command.Outage(reader)

    def read() -> list[str]:
        found: list[str] = []
        with outage.reading():
            found += [each.id for each in command._unread(reader, lambda: [away, there], outage)]
        return found

    assert (read(), read()) == ([], []), "they wait"
    assert capsys.readouterr().err == "duebridge: gone; waiting for the store\n"
    monkeypatch.setattr(command, "PATIENCE_S", 0.0)
    assert (read(), read()) == (["b"], [])
    told = "duebridge: going on without 1 of 2 shards until they are back\n"
    assert capsys.readouterr().err == told
    away.entries_a_reading = PAGE
    assert (read(), read()) == (["a"], [])
    assert capsys.readouterr().err == ""


def test_follow_begun_while_a_shard_is_away_has_what_came_since_once_it_is_back(
    open_desk: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = open_desk(), open_desk()
    first.pending("before")
    second.pending("b")
    first.clock.advance(1)
    with closing(open_connection(f"redis://127.0.0.1:{free_port()}/0")) as nowhere:
        away = Journal(nowhere, first.shard)
        reader = EventReader([away, Journal(second.connection, second.shard)])
        outage = command.Outage(reader)
        reader.go_to_newest(9)
        with outage.starting():
            found = reader.newest(9, outage.leave_out_at_once)
        assert [each.id for each in found] == ["b"]
        told = "duebridge: going on without 1 of 2 shards until they are back\n"
        assert capsys.readouterr().err == told
        reader.begin_left_out_at(first.clock())
        with outage.reading():
            assert not list(reader.new(outage.leave_out))
    first.pending("after")
    away._client = first.connection.client
    with outage.reading():
        assert [each.id for each in reader.new(outage.leave_out)] == ["after"]
    assert capsys.readouterr().err == ""


def test_follow_begun_while_the_store_is_away_as_a_whole_fails_at_once(desk: Desk) -> None:
    with closing(open_connection(f"redis://127.0.0.1:{free_port()}/0")) as nowhere:
        reader = EventReader([Journal(nowhere, desk.shard)])
        outage = command.Outage(reader)
        reader.go_to_newest(9)
        with pytest.raises(StoreUnavailable), outage.starting():
            reader.newest(9, outage.leave_out_at_once)


def test_follow_of_a_store_that_is_away_as_a_whole_says_only_that_it_waits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.pending("a")
    monkeypatch.setattr(command, "PATIENCE_S", 0.0)
    reader = EventReader([failing(desk, 0)])
    outage = command.Outage(reader)

    def journals() -> list[Journal]:
        raise StoreUnavailable("gone")

    for _ in range(3):
        with outage.reading():
            assert not list(command._unread(reader, journals, outage))
    assert capsys.readouterr().err == "duebridge: gone; waiting for the store\n"


def test_entry_half_read_and_lost_in_a_failover_is_a_gap(desk: Desk) -> None:
    desk.pending("a")
    desk.pending("b-1", "b-2")
    reader = EventReader([Journal(desk.connection, desk.shard)])
    half = reader.new()
    assert [next(half).id for _ in range(3)] == ["a", "b-1", "b-2"]  # b-2 may not have been seen
    desk.is_whole = False
    desk.client.xdel(desk.key("journal"), "2-0")
    desk.client.hset(desk.key("meta"), "journal_sequence", 1)
    desk.fail_over()
    desk.pending("c")
    assert [(each.kind, each.id, each.lost_entries) for each in reader.new()] == [
        ("gap", "", 1),
        ("accepted", "c", 0),
    ]


def test_reader_of_a_new_journal_too_has_it_from_its_beginning_and_each_event_once(
    open_desk: Opened,
) -> None:
    first, second = open_desk(), open_desk()
    first.pending("a")
    reader = EventReader([Journal(first.connection, first.shard)])
    assert [event.id for event in reader.new()] == ["a"]
    second.pending("b")
    for expected in (["b"], []):
        reader.add([Journal(each.connection, each.shard) for each in (first, second)])
        assert [event.id for event in reader.new()] == expected


def test_reader_of_a_route_that_was_purged_has_its_new_life_from_the_beginning(desk: Desk) -> None:
    reader = EventReader([Journal(desk.connection, desk.shard)])
    for life in ("old", "new", "newest"):  # each has as many entries as the one before it, and more
        names = [f"{life}-{number}" for number in range(len(life))]
        for name in names:
            desk.pending(name)
        assert [(event.kind, event.id) for event in reader.new()] == [
            ("accepted", name) for name in names
        ]
        Registry(desk.connection, desk.shard.namespace).remove_route("route", 1)
        assert life == "new" or not list(reader.new())
