"""The time line of one envelope: its events out of a journal that has those of all others."""

from collections.abc import Iterator
from typing import Any

import pytest

from duebridge.admin.timeline import Timeline, timeline
from duebridge.envelope import Envelope
from duebridge.errors import ConfigError, EnvelopeError
from duebridge.store.journal import Journal
from duebridge.store.registry import Registry
from tests.acceptance.desk_of_operator import HOUR_MS, ORDERS, REMINDERS, OperatorsDesk
from tests.support.servers import wait_until


def kinds(found: Timeline) -> list[str]:
    return [event.kind for event in found.events]


def test_timeline_has_the_events_of_its_envelope_alone_and_in_order(desk: OperatorsDesk) -> None:
    desk.pending(ORDERS, {f"a{n}": HOUR_MS for n in range(50)})
    desk.retry(ORDERS, "a", error="Timeout\nno answer")
    desk.pending(ORDERS, {f"b{n}": HOUR_MS for n in range(50)})
    desk.producer.reschedule(ORDERS, "a", delay="2h")
    desk.producer.cancel(ORDERS, "b1")
    found = timeline(desk.operator, ORDERS, "a")
    assert kinds(found) == ["accepted", "retried", "rescheduled"]
    assert {event.id for event in found.events} == {"a"}
    retried = found.events[1]
    assert (retried.error_class, retried.error_message) == ("Timeout", "no answer")
    assert retried.attempt == 1
    assert (found.cursor, found.trimmed) == ("", False)


def test_timeline_of_what_was_delivered_begins_with_the_journal(desk: OperatorsDesk) -> None:
    desk.deliver(REMINDERS, "gone")
    assert kinds(timeline(desk.operator, REMINDERS, "gone")) == ["accepted", "delivered"]
    assert timeline(desk.operator, REMINDERS, "never").events == ()


def test_timeline_begins_where_the_envelope_was_accepted(desk: OperatorsDesk) -> None:
    for n in range(40):
        desk.pending(REMINDERS, {f"x{n}": HOUR_MS})
    written_at = desk.operator.now_ms()
    wait_until(lambda: desk.operator.now_ms() > written_at, "the next millisecond")
    desk.pending(REMINDERS, {"last": HOUR_MS})
    found = timeline(desk.operator, REMINDERS, "last")
    assert (kinds(found), found.trimmed) == (["accepted"], False)
    assert found.looked < 41


@pytest.mark.parametrize("bound", [{"limit": 1}, {"most_bytes": 1}, {"limit": 3}])
def test_timeline_is_bounded_and_its_cursor_goes_on(
    desk: OperatorsDesk, bound: dict[str, int]
) -> None:
    desk.pending(REMINDERS, {"a": HOUR_MS})
    for n in range(20):
        desk.pending(REMINDERS, {f"x{n}": HOUR_MS})
        desk.producer.reschedule(REMINDERS, "a", delay=f"{n + 1}h")
    pages = [timeline(desk.operator, REMINDERS, "a", **bound)]
    while pages[-1].cursor:
        pages.append(timeline(desk.operator, REMINDERS, "a", pages[-1].cursor, **bound))
    assert [kind for page in pages for kind in kinds(page)] == ["accepted"] + ["rescheduled"] * 20
    assert max(len(page.events) for page in pages) <= bound.get("limit", 1)
    assert sum(page.looked for page in pages) == 41
    assert not any(page.trimmed for page in pages)


def test_timeline_says_that_the_cap_cut_its_beginning(desk: OperatorsDesk) -> None:
    desk.pending(REMINDERS, {"a": HOUR_MS})
    (store,) = desk.stores(REMINDERS)
    for n in range(20):
        store._journal_cap_bytes = 500
        store.schedule([Envelope.new(b"x", id=f"x{n}", delay="1h")], max_delay_ms=10**9)
    desk.producer.reschedule(REMINDERS, "a", delay="3h")
    found = timeline(desk.operator, REMINDERS, "a")
    assert (kinds(found), found.trimmed) == (["rescheduled"], True)
    (journal,) = desk.operator.journals(REMINDERS)
    left = [name for entry in journal.read(0, journal.last()) for name, _ in entry.items]
    assert len(left) > 2
    for name in left[:-1]:
        whole = timeline(desk.operator, REMINDERS, name)
        assert (kinds(whole), whole.trimmed) == (["accepted"], False), name


def test_timeline_whose_middle_the_cap_cuts_meanwhile_says_so(
    desk: OperatorsDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.pending(REMINDERS, {"a": HOUR_MS})
    for n in range(40):
        desk.producer.reschedule(REMINDERS, "a", delay=f"{n + 1}h")
    (store,) = desk.stores(REMINDERS)
    real = Journal.stored

    def overtaken(journal: Journal, after: int, until: int) -> Iterator[Any]:
        for number, entry in enumerate(real(journal, after, until)):
            if number == 0:  # the rest of the first page is read already
                client: Any = desk.connection.client
                client.xtrim(store.shard.key("journal"), maxlen=5, approximate=False)
            yield entry

    monkeypatch.setattr(Journal, "stored", overtaken)
    found = timeline(desk.operator, REMINDERS, "a")
    assert (kinds(found)[0], len(found.events) < 41, found.trimmed) == ("accepted", True, True)


def test_timeline_continued_after_a_purge_begins_with_the_new_life(desk: OperatorsDesk) -> None:
    for number in range(3):
        desk.pending(REMINDERS, {"a": HOUR_MS} if number == 0 else {f"x{number}": HOUR_MS})
    cursor = timeline(desk.operator, REMINDERS, "a", limit=1).cursor
    Registry(desk.connection, desk.namespace).remove_route(REMINDERS, 1)
    desk.pending(REMINDERS, {"a": HOUR_MS})
    found = timeline(desk.operator, REMINDERS, "a", cursor)
    assert (kinds(found), found.trimmed, found.cursor) == (["accepted"], False, "")


def test_timeline_of_what_there_is_not_is_refused(desk: OperatorsDesk) -> None:
    with pytest.raises(ConfigError, match="got 'nothing'"):
        timeline(desk.operator, "nothing", "a")
    for _ in range(3):
        desk.pending(REMINDERS, {"a": HOUR_MS, "b": HOUR_MS})
        desk.producer.reschedule(REMINDERS, "a", delay="3h")
    cursor = timeline(desk.operator, REMINDERS, "a", limit=1).cursor
    for id, text in (("b", cursor), ("a", "nonsense")):  # noqa: A001
        with pytest.raises(EnvelopeError, match="cursor: expected"):
            timeline(desk.operator, REMINDERS, id, text)
