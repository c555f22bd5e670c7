"""A page of envelopes by column: what a job moves and never looks into."""

from typing import NamedTuple

from duebridge.store.wire.record_columns import RecordColumns, read_records
from duebridge.store.wire.replies import PageReply, State, in_rows, read_reply, read_text


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
