"""Encodes the log positions of a call for the scripts: lua/shared/places.lua.

A shard accepts each position once, whatever happened to its envelope since: a repeat answers
`duplicate`, due 0 where the id is gone (a cancel answers `unknown`), and changes nothing. A message
that was not stored (`too_far`, `expires_before_due`, `conflict`, `in_flight`) is judged again when
it is redelivered, but never undoes a later position of its id. Callers keep three rules:

- Calls name the positions of a log in its order, and a failed call is repeated before the next:
  every earlier position counts as accepted.
- An envelope that is stored under an alternate id has an id of the same shard, or no position:
  another shard may be further by now.
- A message that the caller refuses is sent as a `refused_row`. Else the mark would pass it, and the
  message would be lost if the caller ended before its dead letter was confirmed.

At most 1,000 messages of a log may be unsettled.
"""

from collections.abc import Sequence

import msgspec

from duebridge.envelope import Instant
from duebridge.ports.source import LogPosition
from duebridge.store.wire.packed_row import PackedRow

_encode = msgspec.msgpack.Encoder().encode


def refused_row(id: str) -> PackedRow:  # noqa: A002 - the public name of the field
    """Return a row that stores nothing and answers `refused`; `duplicate` if it was stored before.

    Its place stays open: the message is judged when it comes again.
    """
    return PackedRow.new(id, Instant(0, relative=True), None, 0, content=b"")


def packed_primary_ids(primary_ids: Sequence[str]) -> bytes:
    """Encode the primary ids of rows that are stored under alternate ids; empty for none."""
    return _encode(list(primary_ids)) if any(primary_ids) else b""


def packed_places(places: Sequence[LogPosition | None]) -> bytes:
    """Encode the positions of a call's rows; empty where no row has one."""
    if not any(places):
        return b""
    logs: dict[str, int] = {}
    numbers: list[int] = []
    for place in places:
        if place is None:
            numbers += (0, 0, 0)
        else:
            number = logs.setdefault(place.log, len(logs) + 1)
            numbers += (number, place.epoch, place.offset)
    return _encode((list(logs), numbers))
