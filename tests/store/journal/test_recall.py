"""What ended under an id, as an intake asks of what a queue redelivers."""

from duebridge.store.wire.packed_row import PackedRow, pack_row
from tests.support.desk import YEAR_MS, Desk, envelope

KEEP_MS = 3_600_000


def row(body: bytes, remember_ms: int = KEEP_MS) -> PackedRow:
    return pack_row(envelope("a", "1s", body=body), remember_ms)


def begin(desk: Desk, body: bytes, remember_ms: int = KEEP_MS) -> None:
    given = [row(body, remember_ms)]
    (reply,) = desk.store.schedule(given, max_delay_ms=YEAR_MS, mode="reopen")
    assert reply.status in ("accepted", "replaced")


def end(desk: Desk, body: bytes, remember_ms: int = KEEP_MS) -> None:
    begin(desk, body, remember_ms)
    assert desk.store.cancel("a") == "cancelled"


def recalled(desk: Desk, *bodies: bytes) -> list[str]:
    return [*desk.store.recall([("a", row(body).content_hash) for body in bodies])]


def test_recall_of_what_was_replaced_knows_it_for_its_time(desk: Desk) -> None:
    begin(desk, b"1")
    (reply,) = desk.store.schedule([row(b"2")], max_delay_ms=YEAR_MS, mode="replace")
    assert reply.status == "replaced"
    assert recalled(desk, b"1", b"2") == ["ended", "lives"]
    desk.clock.advance(KEEP_MS)
    assert recalled(desk, b"1") == ["lives"]
    assert desk.store.cancel("a") == "cancelled"
    assert recalled(desk, b"1", b"2") == ["", "ended"]


def test_recall_after_other_lives_of_the_id_knows_each_content_for_its_time(desk: Desk) -> None:
    end(desk, b"1")
    end(desk, b"2", 60_000)
    begin(desk, b"3", 60_000)
    with desk.unchanged():
        assert recalled(desk, b"1", b"2", b"3") == ["ended", "ended", "lives"]
    assert desk.store.cancel("a") == "cancelled"
    desk.clock.advance(60_000)
    assert recalled(desk, b"1", b"2", b"3") == ["ended", "", ""]
    desk.clock.advance(KEEP_MS - 60_000)
    assert recalled(desk, b"1") == [""]
    desk.store.forget()
    assert desk.snapshot()["memory"] == {}


def test_recall_after_many_lives_of_the_id_knows_the_newest(desk: Desk) -> None:
    bodies = [b"%d" % number for number in range(40)]
    for body in bodies:
        end(desk, body)
        end(desk, b"again")
    assert recalled(desk, *bodies, b"again") == [""] * 9 + ["ended"] * 32


def test_recall_of_what_was_never_here_knows_nothing(desk: Desk) -> None:
    assert recalled(desk, b"1") == [""]
    assert recalled(desk) == []
