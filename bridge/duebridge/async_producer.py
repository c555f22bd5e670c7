"""The producer for asyncio programs: the same calls, awaitable, over a few threads of its own."""

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from duebridge.envelope import Envelope, EnvelopeFields
from duebridge.producer import OnConflict, Producer
from duebridge.receipt import Known, Receipt
from duebridge.store.batching import SCHEDULE_ROWS

THREADS = 8  # calls under way at once; more wait for their turn

T = TypeVar("T")


class AsyncProducer:
    """Schedules envelopes as `Producer` does: same arguments, answers and errors.

    Cancelling a task that awaits a call does not stop the call: one that had begun goes on to its
    end, and the envelope may be stored. Schedule it again with the same id, which is harmless.
    May be shared by the tasks of one event loop.
    """

    def __init__(self, open_producer: Callable[[], Producer], *, threads: int = THREADS) -> None:
        """Use the producer that `open_producer` returns; it is called once, in a thread."""
        self._open_producer = open_producer
        self._producer: Producer | None = None
        self._opening = threading.Lock()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="duebridge-producer")

    @classmethod
    def from_config(cls, path: str | Path, *, threads: int = THREADS) -> Self:
        """Return a producer for a configuration file, opened by `async with` or the first call.

        That raises `ConfigError` and `StoreError`.
        """
        return cls(partial(Producer.from_config, path), threads=threads)

    async def schedule(
        self,
        route: str,
        body: bytes | None,
        *,
        on_conflict: OnConflict = "refuse",
        **fields: Unpack[EnvelopeFields],
    ) -> Receipt:
        """Do as `Producer.schedule`."""
        return await self._call(
            lambda producer: producer.schedule(route, body, on_conflict=on_conflict, **fields)
        )

    async def schedule_many(
        self,
        route: str,
        envelopes: Iterable[Envelope] | AsyncIterable[Envelope],
        *,
        on_conflict: OnConflict = "refuse",
    ) -> list[Receipt]:
        """Do as `Producer.schedule_many`, also with an asynchronous iterable."""
        receipts = self.schedule_stream(route, envelopes, on_conflict=on_conflict)
        return [receipt async for receipt in receipts]

    async def schedule_stream(
        self,
        route: str,
        envelopes: Iterable[Envelope] | AsyncIterable[Envelope],
        *,
        on_conflict: OnConflict = "refuse",
    ) -> AsyncIterator[Receipt]:
        """Do as `Producer.schedule_stream`; a plain iterable is read in a thread."""
        await self._call(lambda producer: producer.schedule_many(route, []))  # is there a route?
        async for batch in self._batches(envelopes):
            schedule = partial(
                Producer.schedule_many, route=route, envelopes=batch, on_conflict=on_conflict
            )
            for receipt in await self._call(schedule):
                yield receipt

    async def cancel(self, route: str, id: str) -> str:  # noqa: A002 - the public name of the field
        """Do as `Producer.cancel`."""
        return await self._call(lambda producer: producer.cancel(route, id))

    async def reschedule(
        self,
        route: str,
        id: str,  # noqa: A002 - the public name of the field
        *,
        delay: str | timedelta | None = None,
        at: datetime | int | None = None,
    ) -> str:
        """Do as `Producer.reschedule`."""
        return await self._call(lambda producer: producer.reschedule(route, id, delay=delay, at=at))

    async def get(self, route: str, id: str) -> Known | None:  # noqa: A002 - the public name of the field
        """Do as `Producer.get`."""
        return await self._call(lambda producer: producer.get(route, id))

    async def close(self) -> None:
        """Wait for the calls under way, then close the connection to the store."""
        await asyncio.to_thread(self._shut)

    async def __aenter__(self) -> Self:
        await self._call(lambda _: None)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _call(self, call: Callable[[Producer], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: call(self._opened())
        )

    async def _batches(
        self, envelopes: Iterable[Envelope] | AsyncIterable[Envelope]
    ) -> AsyncIterator[list[Envelope]]:
        if isinstance(envelopes, AsyncIterable):
            batch: list[Envelope] = []
            async for envelope in envelopes:
                batch.append(envelope)
                if len(batch) == SCHEDULE_ROWS:
                    yield batch
                    batch = []
            if batch:
                yield batch
            return
        left = iter(envelopes)
        while some := await self._call(lambda _: list(islice(left, SCHEDULE_ROWS))):
            yield some

    def _opened(self) -> Producer:
        with self._opening:
            if self._producer is None:
                self._producer = self._open_producer()
            return self._producer

    def _shut(self) -> None:
        self._threads.shutdown()
        if self._producer is not None:
            self._producer.close()
