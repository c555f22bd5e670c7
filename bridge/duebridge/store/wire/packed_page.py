"""A page of envelopes by column: what a job moves and never looks into.

The prefixes of many records are read at once, several times cheaper than one by one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from duebridge.errors import RecordDamaged
from duebridge.store.wire.record import LAYOUT, NEWEST_LAYOUT, PREFIX, Record, read_record
from duebridge.store.wire.replies import PageReply, State, in_rows, read_reply, read_text


class RecordColumns(NamedTuple):
    """The fields of `Record` of several envelopes; None in each where one cannot be read."""

    due_at_ms: Sequence[int | None]
    expires_at_ms: Sequence[int | None]
    remember_ms: Sequence[int | None]
    scheduled_at_ms: Sequence[int | None]
    generation: Sequence[int | None]
    content_hash: Sequence[bytes | None]
    blob: Sequence[bytes | None]


def read_records(data: Sequence[bytes]) -> RecordColumns:
    """Return the fields of records; blobs stay as they are."""
    size = PREFIX.size
    if not data or not all(
        len(each) >= size and LAYOUT <= each[0] <= NEWEST_LAYOUT for each in data
    ):
        return _read_singly(data)
    prefixes = b"".join([each[:size] for each in data])
    _, *parts, hashes = zip(*PREFIX.iter_unpack(prefixes), strict=True)
    due, expires, remember, scheduled, generation = (
        [high << 32 | low for high, low in zip(*pair, strict=True)]
        for pair in zip(parts[::2], parts[1::2], strict=True)
    )
    blobs = [each[size:] for each in data]
    return RecordColumns(due, expires, remember, scheduled, generation, [*hashes], blobs)


def _read_singly(data: Sequence[bytes]) -> RecordColumns:
    found = [_known(each) for each in data]
    return RecordColumns(
        *(
            [None if each is None else getattr(each, field) for each in found]
            for field in RecordColumns._fields
        )
    )


def _known(data: bytes) -> Record | None:
    try:
        return read_record(data)
    except RecordDamaged:
        return None


class PackedPage(NamedTuple):
    """The envelopes of a page of `DelayStore.list`, their contents not decoded."""

    ids: list[str]
    scores_ms: list[int]
    state: State
    records: RecordColumns

    @property
    def cursor(self) -> tuple[str, int] | None:
        """Where the next page begins, None at the end."""
        return (self.ids[-1], self.scores_ms[-1]) if self.ids else None


def read_packed_page(state: State, reply: object) -> PackedPage:
    """Return a page by column."""
    rows = read_reply(reply, PageReply)
    in_rows(*rows[1:])
    ids = [read_text(each) for each in rows.ids]
    return PackedPage(ids, rows.scores_ms, state, read_records(rows.records))
