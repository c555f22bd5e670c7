"""A desk of a route with a cold tier, and rows that leave it for files and come back."""

from typing import Any, NamedTuple

from duebridge.store.cold.notes import ColdNotes
from tests.support.desk import DAY_MS, NOW_MS, Desk, envelope

DUE_MS = NOW_MS + 30 * DAY_MS


class Row(NamedTuple):
    """A row of a batch."""

    id: str
    generation: int
    batch: str
    body: bytes = b"body"


def far(id: str, body: bytes = b"body", at: int = DUE_MS) -> Any:
    return envelope(id, at=at, body=body)


def begin(desk: Desk) -> None:
    """Note, as the jobs do, that rows may go cold from now on."""
    ColdNotes(desk.connection, desk.shard).note_first(1)


def copied(desk: Desk, id: str, batch: str = "B") -> Row:
    """The row of a batch that was read now."""
    entry = desk.store.get(id)
    assert entry
    assert entry.record
    assert entry.content
    return Row(id, entry.record.generation, batch, entry.content.body or b"")


def demoted(desk: Desk, id: str, batch: str = "B") -> Row:
    """Schedule an envelope and let it go cold."""
    assert [each.status for each in desk.schedule(far(id))] == ["accepted"]
    row = copied(desk, id, batch)
    assert desk.store.demote(batch, 0, [(id, row.generation)]).removed == 1
    return row


def hydrate(desk: Desk, row: Row, lease: str = "") -> str:
    """Bring a row back as hydrate does, but for the horizon of `remember`."""
    (answer,) = desk.schedule(far(row.id, row.body), generations=[row.generation], lease=lease)
    return str(answer.status)


def sift(desk: Desk, *cold: str, floor: int, words: int = 128, lease: str = "") -> None:
    """Rebuild the filter as a job does that found these ids in the files."""
    desk.store.begin_sift(words, floor, lease)
    if cold:
        desk.store.mark(cold, None, lease)
    desk.store.end_sift(floor, lease)


def tombstones(desk: Desk) -> set[str]:
    return {name[1:].decode() for name in desk.snapshot()["memory"] if name[:1] == b"t"}
