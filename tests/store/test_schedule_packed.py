"""Scheduling of packed rows: the same answers, and safe to repeat with or without a kept answer."""

import pytest

from duebridge.store.connection import Connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.record import PackedRow, pack_row
from tests.support.desk import DAY_MS, YEAR_MS, Desk, envelope


def row(name: str, remember_ms: int = 0, body: bytes = b"x") -> PackedRow:
    return pack_row(envelope(name, "1d", body=body), remember_ms)


@pytest.fixture
def store(connection: Connection, desk: Desk) -> DelayStore:
    return DelayStore(connection, desk.shard, repeat_for_s=1.0)


def test_schedule_of_packed_rows_stores_what_envelopes_would(desk: Desk, store: DelayStore) -> None:
    answers = store.schedule([row("a"), row("b")], max_delay_ms=YEAR_MS, keeps_answer=False)
    assert [answer.status for answer in answers] == ["accepted", "accepted"]
    assert desk.record_of("a").due_at_ms == answers[0].due_at_ms
    (again,) = desk.store.schedule([envelope("a", "1d", body=b"x")], max_delay_ms=YEAR_MS)
    assert again == ("duplicate", answers[0].due_at_ms)


def test_schedule_of_remembered_rows_without_an_answer_stays_cancelled_when_repeated(
    desk: Desk, store: DelayStore
) -> None:
    rows = [row("a", DAY_MS), row("b", DAY_MS)]
    store.schedule(rows, max_delay_ms=YEAR_MS, keeps_answer=False)
    assert desk.client.hlen(desk.key("memory")) == 0
    assert desk.again(now_ms=None).cancel("a") == "cancelled"
    (answer,) = store.schedule(rows[:1], max_delay_ms=YEAR_MS, keeps_answer=False)
    assert answer.status == "duplicate"


@pytest.mark.parametrize(
    ("remember_ms", "replace", "keeps_answer"),
    [(0, False, False), (DAY_MS, True, False), (DAY_MS, False, True)],
)
def test_schedule_that_ids_do_not_guard_keeps_its_answer(
    desk: Desk, store: DelayStore, remember_ms: int, replace: bool, keeps_answer: bool
) -> None:
    store.schedule(
        [row("a", remember_ms)], max_delay_ms=YEAR_MS, replace=replace, keeps_answer=keeps_answer
    )
    assert desk.client.hlen(desk.key("memory")) == 1


def test_schedule_of_packed_rows_answers_for_each_row(store: DelayStore) -> None:
    store.schedule([row("a")], max_delay_ms=YEAR_MS)
    answers = store.schedule([row("a", body=b"other"), row("b")], max_delay_ms=1000)
    assert [answer.status for answer in answers] == ["conflict", "too_far"]
