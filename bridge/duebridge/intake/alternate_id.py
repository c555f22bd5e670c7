"""Alternate ids: where a message's own id belongs to other content or is in flight.

The store may know what a queue redelivers under either.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from duebridge.envelope import Envelope
from duebridge.intake.ids import unused_id
from duebridge.ports.source import Arrival, LogPosition
from duebridge.receipt import Receipt
from duebridge.scheduling.route_scheduler import PreparedBatch, RouteScheduler
from duebridge.store.routing import RouteStore
from duebridge.store.wire.record import pack
from duebridge.store.wire.transitions import ScheduleMode

AGAIN = "2"  # the suffix of an alternate id that is taken too


def under_alternate_id(
    arrival: Arrival, envelope: Envelope, receipt: Receipt, shards: int
) -> Envelope:
    """Return the envelope under its alternate id, which is the same at each redelivery."""
    if receipt.status == "in_flight" and arrival.place is not None:
        return replace(envelope, id=unused_id(envelope.id, arrival.id, shards))
    if arrival.place is None and receipt.status != "in_flight":
        shards = 1
    return replace(envelope, id=id_by_content(envelope, shards))


def id_by_content(envelope: Envelope, shards: int = 1) -> str:
    """Return the alternate id of a content; with one shard, that of a queue's message."""
    return unused_id(envelope.id, pack(envelope).content_hash.hex(), shards)


def store_alternates(
    scheduler: RouteScheduler,
    rows: list[Envelope],
    places: Sequence[LogPosition | None],
    primary_ids: Sequence[str],
    mode: ScheduleMode,
    least_ms: int,
) -> list[Receipt]:
    """Store rows under their alternate ids; under a second one where that belongs to other content.

    An envelope that replaced a queue's message may have its alternate id.
    """
    receipts = scheduler.schedule(
        rows, mode=mode, places=places, primary_ids=primary_ids, least_ms=least_ms
    )
    taken = [
        n for n, receipt in enumerate(receipts) if primary_ids[n] and receipt.status == "conflict"
    ]
    if taken:
        shards = len(scheduler.store.shards)
        again = [replace(rows[n], id=unused_id(rows[n].id, AGAIN, shards)) for n in taken]
        their_places = [places[n] for n in taken] if places else ()
        keys = [primary_ids[n] for n in taken]
        others = store_alternates(scheduler, again, their_places, keys, mode, least_ms)
        for n, receipt in zip(taken, others, strict=True):
            receipts[n] = receipt
    return receipts


class _Name(NamedTuple):
    """An id that an envelope may have been stored under; `number` is the envelope's."""

    id: str
    number: int
    is_alternate: bool


def find_taken(store: RouteStore, batch: PreparedBatch, given: Sequence[Envelope]) -> set[int]:
    """Return the numbers of a batch's envelopes that were taken in before, and are to be left out.

    Their content has ended under their id, whatever began there since, or they were stored under
    their alternate id. What lives or ended with other content is no reason. `given` are the
    envelopes as they were read. Raises `StoreError`.
    """
    taken: set[int] = set()
    for shard, names in store.by_shard(_names(batch, given), lambda name: name.id):
        contents = [(name.id, batch.rows[name.number].content_hash) for name in names]
        for name, answer in zip(names, shard.recall(contents), strict=True):
            if answer == "ended" or (answer == "lives" and name.is_alternate):
                taken.add(name.number)
    return taken


def _names(batch: PreparedBatch, given: Sequence[Envelope]) -> Iterator[_Name]:
    for number, envelope in enumerate(given):
        if number not in batch.refused:
            yield _Name(envelope.id, number, is_alternate=False)
            yield _Name(id_by_content(envelope), number, is_alternate=True)
