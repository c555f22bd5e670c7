"""The places of a call, as the scripts take them: lua/shared/places.lua.

A shard takes each place in once, whatever became of its envelope since: then the answer is
`duplicate`, due 0 where the id is gone (a cancel's is `unknown`), and nothing changes. What was not
stored (`too_far`, `expires_before_due`, `conflict`, `in_flight`) is judged again when it comes
again, but never undoes a later place of its id. Who calls keeps three rules:

- Calls name the places of a log in its order, and one that failed is repeated before the next:
  what is earlier counts as taken in.
- An envelope that is stored under another id than its message's first one has an id of the same
  shard, or no place: another shard may be further by now.
- A message that the caller refuses goes along as a `refused_row`: else the mark would pass it, and
  it would be lost if the caller ended before its dead letter was out and took it the next time.

At most 1,000 messages of a log may be unsettled.
"""

from collections.abc import Sequence

import msgspec

from duebridge.ports.source import Place
from duebridge.store.wire.record import PackedRow

_encode = msgspec.msgpack.Encoder().encode


def refused_row(id: str) -> PackedRow:  # noqa: A002 - the public name of the field
    """Return a row that stores nothing and answers `refused`; `duplicate` if it was stored before.

    Its place stays open: the message is judged when it comes again.
    """
    return PackedRow(id, "+0", "", 0, b"", 0, b"")


def packed_besides(besides: Sequence[str]) -> bytes:
    """Return the argument for the ids beside which a call's rows are stored, empty for none."""
    return _encode(list(besides)) if any(besides) else b""


def packed_places(places: Sequence[Place | None]) -> bytes:
    """Return the argument for the places of a call's rows, empty where no row has one."""
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
