"""Batches the single envelopes of concurrent requests into shared store calls.

A request waits for no other: the envelopes that arrive during one call make up the next. On a
Cluster each node has calls of its own, so that one that is away holds up those of no other.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from duebridge.envelope import Envelope
from duebridge.errors import StoreError, StoreUnavailable
from duebridge.http.problems import ProblemError
from duebridge.http.site import Site
from duebridge.http.tokens import Token
from duebridge.receipt import Receipt
from duebridge.scheduling.route_scheduler import size_bytes
from duebridge.store.batching import batches
from duebridge.store.caller import never
from duebridge.store.wire.transitions import ScheduleMode


class Waiting(NamedTuple):
    """An envelope of a request, its answer to come, and what is asked before it is stored.

    That is whether its client has left, and, by `check`, whether it may still schedule.
    """

    envelope: Envelope
    answer: "asyncio.Future[Receipt]"
    has_left: Callable[[], bool]
    check: Callable[[], None]


class BatchKey(NamedTuple):
    """What envelopes of one store call share: node and options, `RouteScheduler.schedule`'s."""

    token: Token
    route: str
    mode: ScheduleMode = "refuse"
    least_ms: int = 0
    node: str = ""


class ScheduleBatcher:
    """Schedules single envelopes in shared calls; one call at a time for each `BatchKey`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._waiting: dict[BatchKey, deque[Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def schedule(
        self,
        key: BatchKey,
        envelope: Envelope,
        has_left: Callable[[], bool] = never,
        check: Callable[[], None] = lambda: None,
    ) -> Receipt:
        """Schedule an envelope; raises as `RouteScheduler.schedule` does, and what `check` raises.

        A `StoreError` names this id alone. No call begins for a client that `has_left`, and once
        all clients of a call have, it is not sent again. `check` runs as a call begins, which may
        be seconds later.
        """
        if node := self._site.node_of(key.route, envelope.id):
            key = key._replace(node=node)
        future = asyncio.get_running_loop().create_future()
        waiting = Waiting(envelope, future, has_left, check)
        if key in self._waiting:
            self._waiting[key].append(waiting)
        else:
            self._waiting[key] = deque([waiting])
            task = asyncio.create_task(self._work(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        receipt: Receipt = await future
        return receipt

    async def _work(self, key: BatchKey) -> None:
        """Store what waits until nothing does; whatever happens, nobody waits for ever."""
        queue = self._waiting[key]
        try:
            while queue:
                batch = next(batches(queue, _size_bytes))  # the queue keeps them
                await self._store(key, batch)
                for _ in batch:
                    queue.popleft()
        except Exception as error:  # a defect
            _fail(queue, error)
        finally:
            del self._waiting[key]
            for each in queue:
                each.answer.cancel()  # if the loop ends; else all are done

    async def _store(self, key: BatchKey, batch: list[Waiting]) -> None:
        if awaited := [each for each in batch if _is_awaited(each)]:
            await self._store_awaited(key, awaited)

    async def _store_awaited(self, key: BatchKey, batch: list[Waiting]) -> None:
        envelopes = [each.envelope for each in batch]
        try:
            receipts = await schedule_batch(
                self._site, key, envelopes, lambda: all(each.has_left() for each in batch)
            )
        except Exception as error:
            _fail(_without_answers(batch, error), error)
            return
        for each, receipt in zip(batch, receipts, strict=True):
            _answer(each, receipt)


async def schedule_batch(
    site: Site, key: BatchKey, batch: list[Envelope], has_left: Callable[[], bool] = never
) -> list[Receipt]:
    """Schedule a batch in one call; raises as `RouteScheduler.schedule` does."""

    def call() -> list[Receipt]:
        scheduler = site.scheduler(key.route)
        return scheduler.schedule(batch, mode=key.mode, least_ms=key.least_ms)

    return await site.run(call, key.token, has_left, key.node)


def receipts_before(batch: Sequence[Envelope], error: StoreError) -> list[Receipt | None]:
    """Return the receipts that a batch had before its call failed; None where an id lacks one.

    Of several envelopes of one id each gets its own; none where one of them lacks one, since the
    error does not say which.
    """
    lacking, found = frozenset(error.ids), defaultdict[str, deque[Receipt]](deque)
    for receipt in error.receipts:
        found[receipt.id].append(receipt)
    own = [None if each.id in lacking else found[each.id] for each in batch]
    return [receipts.popleft() if receipts else None for receipts in own]


def _size_bytes(waiting: Waiting) -> int:
    return size_bytes(waiting.envelope)


def _without_answers(batch: list[Waiting], error: Exception) -> list[Waiting]:
    """Answer what a failed call had stored before, as on another shard; return the others."""
    if not isinstance(error, StoreError):
        return batch
    receipts = receipts_before([each.envelope for each in batch], error)
    for each, receipt in zip(batch, receipts, strict=True):
        if receipt is not None:
            _answer(each, receipt)
    return [each for each, receipt in zip(batch, receipts, strict=True) if receipt is None]


def _is_awaited(waiting: Waiting) -> bool:
    """Whether an envelope is still to be stored; else its request is answered."""
    try:
        waiting.check()
    except ProblemError as refusal:
        _fail([waiting], refusal)
        return False
    if waiting.has_left():
        _fail([waiting], StoreUnavailable("the client has left"))
        return False
    return True


def _answer(waiting: Waiting, receipt: Receipt) -> None:
    if not waiting.answer.done():
        waiting.answer.set_result(receipt)


def _fail(waiting: Iterable[Waiting], error: Exception) -> None:
    for each in waiting:
        if not each.answer.done():
            each.answer.set_exception(_about(error, each.envelope))


def _about(error: Exception, envelope: Envelope) -> Exception:
    return error.about([envelope.id]) if isinstance(error, StoreError) else error
