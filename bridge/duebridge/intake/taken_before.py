"""Tells what a queue redelivers though the store took it in before, under whatever id."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from duebridge.envelope import Envelope
from duebridge.intake.alternate_id import id_by_content
from duebridge.scheduling.route_scheduler import PreparedBatch
from duebridge.store.routing import RouteStore


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
