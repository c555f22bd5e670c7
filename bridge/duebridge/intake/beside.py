"""Stores what came under an id that other content has, or that is on its way, under another id."""

from collections.abc import Sequence

from msgspec.structs import replace

from duebridge.envelope import Envelope
from duebridge.intake.ids import other_id
from duebridge.ports.source import Arrival, Place
from duebridge.receipt import Receipt
from duebridge.scheduling import RouteScheduler
from duebridge.store.wire.record import pack

AGAIN = "2"  # after an id beside another that is taken in its turn


def beside_of(arrival: Arrival, envelope: Envelope, receipt: Receipt, shards: int) -> Envelope:
    """Return the envelope under an id of its own, the same one at each redelivery."""
    if receipt.status == "in_flight" and arrival.place is not None:
        suffix = arrival.id
    else:
        suffix = pack(envelope).content_hash.hex()
    if arrival.place is None and receipt.status != "in_flight":
        shards = 1
    return replace(envelope, id=other_id(envelope.id, suffix, shards))


def stored_beside(
    scheduler: RouteScheduler,
    rows: list[Envelope],
    places: Sequence[Place | None],
    besides: Sequence[str],
    reopens: bool,
) -> list[Receipt]:
    """Store rows beside their ids. A queue's row may find its own id taken by what replaced it."""
    receipts = scheduler.schedule(
        rows, replace=False, reopens=reopens, places=places, besides=besides
    )
    taken = [n for n, of in enumerate(receipts) if besides[n] and of.status == "conflict"]
    if taken:
        shards = len(scheduler.store.shards)
        again = [replace(rows[n], id=other_id(rows[n].id, AGAIN, shards)) for n in taken]
        their_places = [places[n] for n in taken] if places else ()
        keys = [besides[n] for n in taken]
        others = stored_beside(scheduler, again, their_places, keys, reopens)
        for n, receipt in zip(taken, others, strict=True):
            receipts[n] = receipt
    return receipts
