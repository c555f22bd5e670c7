"""Joins envelopes that arrive together into one call of the store.

Nobody waits for company: what came in while the last call ran makes up the next one.
"""

import asyncio
from collections import deque
from typing import NamedTuple, TypeAlias

from duebridge.envelope import Envelope
from duebridge.errors import StoreUnavailable
from duebridge.http.site import Site
from duebridge.http.tokens import Token
from duebridge.receipt import Receipt
from duebridge.scheduling import size_bytes
from duebridge.store.batching import CALL_BYTES, SCHEDULE_ROWS

Waiting: TypeAlias = tuple[Envelope, "asyncio.Future[Receipt]"]


class Manner(NamedTuple):
    """What envelopes of one call have in common; `holds` is that of `DelayStore.schedule`."""

    token: Token
    route: str
    replace: bool = False
    holds: bool = False


class Together:
    """Schedules single envelopes, many in a call; one call at a time for each `Manner`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._waiting: dict[Manner, deque[Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def schedule(self, manner: Manner, envelope: Envelope) -> Receipt:
        """Return the receipt of an envelope; raises as `RouteScheduler.schedule` does.

        A `StoreUnavailable` names this id alone. A caller that goes away stops nothing.
        """
        future = asyncio.get_running_loop().create_future()
        if manner in self._waiting:
            self._waiting[manner].append((envelope, future))
        else:
            self._waiting[manner] = deque([(envelope, future)])
            task = asyncio.create_task(self._work(manner))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        receipt: Receipt = await future
        return receipt

    async def _work(self, manner: Manner) -> None:
        queue = self._waiting[manner]
        while queue:
            await self._store(manner, _taken(queue))
        del self._waiting[manner]

    async def _store(self, manner: Manner, batch: list[Waiting]) -> None:
        envelopes = [envelope for envelope, _ in batch]
        try:
            receipts = await schedule_batch(self._site, manner, envelopes)
        except Exception as error:
            for envelope, future in batch:
                if not future.done():
                    future.set_exception(_about(error, envelope))
            return
        for (_, future), receipt in zip(batch, receipts, strict=True):
            if not future.done():
                future.set_result(receipt)


async def schedule_batch(site: Site, manner: Manner, batch: list[Envelope]) -> list[Receipt]:
    """Return the receipts of a batch; raises as `RouteScheduler.schedule` does."""

    def call() -> list[Receipt]:
        scheduler = site.scheduler(manner.route)
        return scheduler.schedule(batch, replace=manner.replace, holds=manner.holds)

    return await site.run(call, manner.token)


def _taken(queue: deque[Waiting]) -> list[Waiting]:
    """Take from the queue what fits into one call."""
    batch, size = [queue.popleft()], 0
    size = size_bytes(batch[0][0])
    while queue and len(batch) < SCHEDULE_ROWS:
        size += size_bytes(queue[0][0])
        if size > CALL_BYTES:
            break
        batch.append(queue.popleft())
    return batch


def _about(error: Exception, envelope: Envelope) -> Exception:
    return error.about([envelope.id]) if isinstance(error, StoreUnavailable) else error
