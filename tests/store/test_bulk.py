"""Bulk scheduling is schedule: the same answers, and safe to repeat with or without a call id."""

import pytest

from duebridge.store.bulk import BulkStore
from duebridge.store.codec import pack
from duebridge.store.connection import Connection
from duebridge.store.packed import PackedRow
from tests.store.desk import DAY_MS, YEAR_MS, Desk, envelope


def row(name: str, remember_ms: int = 0, body: bytes = b"x", generation: int = 0) -> PackedRow:
    given = envelope(name, "1d", body=body)
    packed = pack(given)
    return PackedRow(
        name, str(given.due), "", remember_ms, packed.content_hash, generation, packed.blob
    )


@pytest.fixture
def bulk(connection: Connection, desk: Desk) -> BulkStore:
    return BulkStore(connection, desk.shard, repeat_for_s=1.0)


def test_bulk_stores_what_schedule_would(desk: Desk, bulk: BulkStore) -> None:
    answers = bulk.schedule([row("a"), row("b")], max_delay_ms=YEAR_MS)
    assert answers.statuses == [b"accepted", b"accepted"]
    assert desk.record_of("a").due_at_ms == answers.dues_ms[0]
    (again,) = desk.store.schedule([envelope("a", "1d", body=b"x")], max_delay_ms=YEAR_MS)
    assert again == ("duplicate", answers.dues_ms[0])


def test_bulk_of_remembered_rows_keeps_no_answer(desk: Desk, bulk: BulkStore) -> None:
    bulk.schedule([row("a", DAY_MS), row("b", DAY_MS)], max_delay_ms=YEAR_MS)
    assert desk.client.hlen(desk.key("memory")) == 0
    assert desk.again(now_ms=None).cancel("a") == "cancelled"
    answers = bulk.schedule([row("a", DAY_MS)], max_delay_ms=YEAR_MS)
    assert answers.statuses == [b"duplicate"], "a repeat does not bring back what was cancelled"


@pytest.mark.parametrize(("remember_ms", "replace"), [(0, False), (DAY_MS, True)])
def test_bulk_of_rows_that_ids_do_not_guard_keeps_its_answer(
    desk: Desk, bulk: BulkStore, remember_ms: int, replace: bool
) -> None:
    bulk.schedule([row("a", remember_ms)], max_delay_ms=YEAR_MS, replace=replace)
    assert desk.client.hlen(desk.key("memory")) == 1


def test_bulk_of_other_content_answers_for_each_row(desk: Desk, bulk: BulkStore) -> None:
    bulk.schedule([row("a")], max_delay_ms=YEAR_MS)
    answers = bulk.schedule([row("a", body=b"other"), row("b")], max_delay_ms=1000)
    assert answers.statuses == [b"conflict", b"too_far"]
