"""The time line of one envelope: what the journal of its shard has of it, a bounded part at a time.

The journal has no index of ids. It is read from the instant at which the envelope was accepted, so
many bytes a call.
"""

from typing import TYPE_CHECKING

import msgspec

from duebridge.admin.cursors import cursor_of, position_of
from duebridge.admin.events import EnvelopeEvent, events_of
from duebridge.errors import EnvelopeError

if TYPE_CHECKING:
    from duebridge.admin.operator import Operator
    from duebridge.store.journal import Journal

MOST_BYTES = 8 * 1024 * 1024  # of the journal, a call
BEGINNINGS = ("accepted", "replaced")


class Timeline(msgspec.Struct, frozen=True):
    """Events of one envelope, oldest first; `cursor` continues, "" at the end of the journal.

    `trimmed`: events are missing, since the journal's cap cut them, or a failover lost
    them. `looked` counts the journal's entries that were looked at.
    """

    events: tuple[EnvelopeEvent, ...]
    cursor: str
    trimmed: bool
    looked: int


class _JournalCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Behind this entry of the journal of an id's shard, in one life of the route."""

    route: str
    id: str
    after: int
    epoch: str = ""

    def __str__(self) -> str:
        return cursor_of(self)


def timeline(
    operator: "Operator",
    route: str,
    id: str,  # noqa: A002 - the public name of the field
    cursor: str = "",
    limit: int = 100,
    most_bytes: int = MOST_BYTES,
) -> Timeline:
    """Return an id's events in the journal: `limit` or some more, from `most_bytes` of journal.

    It begins where the envelope was accepted; of an id that the store does not have, at the
    journal's oldest entry. Raises `ConfigError` for an unknown route, `EnvelopeError` for the
    cursor of another time line, and `StoreError`.
    """
    journal = operator.journal(route, id)
    until, numbering, epoch = journal.end()
    if cursor:
        after = _read_cursor(cursor, route, id, epoch)
    else:
        after = _beginning(operator, journal, route, id)
    events: list[EnvelopeEvent] = []
    looked = size = 0
    trimmed_before = trimmed_amid = False
    for head, entry in journal.about(id, after, until):
        is_cut = numbering.count(after, head.before) > 0
        trimmed_before |= is_cut and not events
        trimmed_amid |= is_cut and bool(events)
        looked, size, after = looked + 1, size + head.size, head.sequence
        events += events_of(journal.shard, entry) if entry else ()
        if len(events) >= limit or size >= most_bytes:
            break
    else:
        trimmed_amid |= numbering.count(after, until) > 0
        after = until
    has_beginning = bool(events) and events[0].kind in BEGINNINGS
    trimmed = trimmed_amid or (trimmed_before and not has_beginning)
    text = str(_JournalCursor(route, id, after, epoch)) if after < until else ""
    return Timeline(tuple(events), text, trimmed, looked)


def _beginning(operator: "Operator", journal: "Journal", route: str, id: str) -> int:  # noqa: A002
    entry = operator.entry(route, id)
    if entry is None or entry.record is None:
        return 0
    return journal.before_instant(entry.record.scheduled_at_ms)


def _read_cursor(
    text: str,
    route: str,
    id: str,  # noqa: A002 - the public name of the field
    epoch: str,
) -> int:
    try:
        position = position_of(text, _JournalCursor)
    except ValueError as error:
        raise EnvelopeError(f"cursor: expected one of a time line; got {text!r}") from error
    if (position.route, position.id) != (route, id):
        raise EnvelopeError(f"cursor: expected one of {id!r}; got one of {position.id!r}")
    return position.after if position.epoch in ("", epoch) else 0
