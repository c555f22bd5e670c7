"""The producer for asyncio programs: the calls of `Producer`, awaitable, over a few threads."""

import asyncio
import os
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from msgspec import UNSET

from duebridge.envelope import BodyGiven, Envelope, EnvelopeFields, checked_id, random_id
from duebridge.errors import ConfigError, EnvelopeError, StoreError
from duebridge.producer import (
    OnConflict,
    Producer,
    check_iterable,
    checked_size,
    keeping,
    naming_ahead,
)
from duebridge.receipt import Receipt
from duebridge.store.batching import Batches
from duebridge.store.caller import (
    NodeThreads,
    abandoned_if,
    check_awaited,
    never,
    run_while_awaited,
)

THREADS = 8  # calls that run at once, on a Cluster of each node; further calls wait

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def _awaitable(
    method: Callable[Concatenate[Producer, Arguments], Answer],
) -> "Callable[Concatenate[AsyncProducer, Arguments], Coroutine[Any, Any, Answer]]":
    """Return a method of the same signature that runs in a thread of the `AsyncProducer`.

    Its first arguments are a route and an id.
    """

    @wraps(method)
    async def call(
        self: "AsyncProducer", /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Answer:
        named = dict(zip(("route", "id"), args, strict=False), **kwargs)
        node = self._node_of(named.get("route"), named.get("id"))
        return await self._call(lambda producer: method(producer, *args, **kwargs), node=node)

    return call


class AsyncProducer:
    """Schedules envelopes as `Producer` does: same arguments, answers and errors.

    `schedule`, `schedule_many`, `cancel`, `reschedule` and `get` are `Producer`'s, awaited:
    `async with AsyncProducer.from_config("duebridge.yaml") as producer:` and then
    `receipt = await producer.schedule("reminders", "call back", delay="15m")`.

    If you cancel a task that awaits a call, the envelope may still be stored: within five seconds,
    or when a frozen server resumes. Nothing is sent for the call after that. Schedule again with
    the same id, which is harmless. If the first call raises a `StoreError` without `ids`, opening
    the producer failed, and nothing was sent. The tasks of one event loop may share a producer.
    On a Cluster a node that is away holds up no call about an id of another.
    Fork before its first call or after that was answered, not while it runs: a thread of it may
    hold Python's lock of an import then, on which the child would wait for ever.
    """

    def __init__(
        self, open_producer: Callable[[], Producer] | None = None, *, threads: int = THREADS
    ) -> None:
        """Use the producer that `open_producer` returns: see `from_config`.

        It is called once, in a thread. `threads` calls run at once, on a Cluster of each node.
        """
        if not callable(open_producer):
            expected = "expected a function that opens a Producer"
            raise ConfigError(f"AsyncProducer: {expected}; use AsyncProducer.from_config(path)")
        self._open_producer = open_producer
        self._producer: Producer | None = None
        self._failure: StoreError | None = None  # of the latest opening
        self._thread_count = threads
        self._is_closed = False
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._opening = threading.Lock()
        self._threads = NodeThreads(self._thread_count, "duebridge-producer")

    @classmethod
    def from_config(cls, path: str | Path, *, threads: int = THREADS) -> Self:
        """Return a producer for a configuration file, opened by `async with` or the first call.

        Opening raises `ConfigError` and `StoreError`.
        """
        return cls(partial(Producer.from_config, path), threads=threads)

    async def schedule(
        self,
        route: str,
        body: BodyGiven = UNSET,
        *,
        on_conflict: OnConflict = "refuse",
        **fields: Unpack[EnvelopeFields],
    ) -> Receipt:
        """Do as `Producer.schedule`."""
        if fields.get("id") is None:
            fields["id"] = random_id()  # the call would draw one: it tells whose threads run it
        node = self._node_of(route, fields["id"])
        call = partial(Producer.schedule, route=route, body=body, on_conflict=on_conflict, **fields)
        return await self._call(call, node=node)

    cancel = _awaitable(Producer.cancel)
    reschedule = _awaitable(Producer.reschedule)
    get = _awaitable(Producer.get)

    async def schedule_many(
        self,
        route: str,
        envelopes: Iterable[Envelope] | AsyncIterable[Envelope],
        *,
        on_conflict: OnConflict = "refuse",
    ) -> list[Receipt]:
        """Do as `Producer.schedule_many`, also with an asynchronous iterable."""
        receipts: list[Receipt] = []
        with keeping(receipts):
            async for each in self.schedule_stream(route, envelopes, on_conflict=on_conflict):
                receipts.append(each)
        return receipts

    async def schedule_stream(
        self,
        route: str,
        envelopes: Iterable[Envelope] | AsyncIterable[Envelope],
        *,
        on_conflict: OnConflict = "refuse",
    ) -> AsyncIterator[Receipt]:
        """Do as `Producer.schedule_stream`; a plain iterable is read in a thread."""
        schedule = partial(Producer.schedule_many, route=route, on_conflict=on_conflict)
        if not isinstance(envelopes, AsyncIterable):
            check_iterable(envelopes)
        await self._call(partial(schedule, envelopes=[]))  # refuse an unknown route at once
        cut: Batches[Envelope] = Batches(checked_size)
        async for batch in self._batches(cut, envelopes):
            with naming_ahead(cut):
                receipts = await self._call(partial(schedule, envelopes=batch), batch)
            for receipt in receipts:
                yield receipt

    async def close(self) -> None:
        """Wait for running calls, then close the connection to the store; a later call raises."""
        self._is_closed = True
        await asyncio.to_thread(self._shut)

    async def __aenter__(self) -> Self:
        await self._call(lambda _: None)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _call(
        self,
        call: Callable[[Producer], Answer],
        batch: Sequence[Envelope] = (),
        node: str = "",
    ) -> Answer:
        """Run a call, which may schedule a batch, in a thread of the node."""
        self._follow_fork()
        if self._is_closed:
            said = "the producer is closed; open another by AsyncProducer.from_config"
            raise StoreError(said, [each.id for each in batch])
        known = self._failure
        return await run_while_awaited(self._threads, lambda: call(self._opened(known)), node)

    def _node_of(self, route: Any, id: Any) -> str:  # noqa: A002 - the field's public name
        """Return the Cluster's node of an id; empty on one server, or where it is unknown."""
        opened = self._producer and isinstance(route, str) and self._producer._routes.get(route)
        try:
            return opened.store.of(checked_id(id)).node if opened else ""
        except EnvelopeError:  # the call itself says so
            return ""

    def _follow_fork(self) -> None:
        """Make threads of our own in a forked child: the parent's do not exist there."""
        if self._pid != os.getpid():
            self._reset()

    async def _batches(
        self, cut: Batches[Envelope], envelopes: Iterable[Envelope] | AsyncIterable[Envelope]
    ) -> AsyncIterator[list[Envelope]]:
        if isinstance(envelopes, AsyncIterable):
            async for envelope in envelopes:
                if batch := cut.add(envelope):
                    yield batch
            if batch := cut.rest():
                yield batch
            return
        left = cut.of(envelopes)
        while True:
            with naming_ahead(cut):
                batch = await self._call(lambda _: next(left, []))
            if not batch:
                return
            yield batch

    def _opened(self, known: StoreError | None) -> Producer:
        """Return the producer; a call that waited while opening it failed does not try again.

        `known` is the failure that there was when the call was made.
        """
        with self._opening:
            check_awaited()
            if self._producer is None:
                if self._failure is not None and self._failure is not known:
                    raise self._failure.about(()) from self._failure
                self._producer, self._failure = self._open(), None
            return self._producer

    def _open(self) -> Producer:
        try:
            with abandoned_if(never):  # others wait for it, too
                return self._open_producer()
        except StoreError as error:
            self._failure = error
            raise

    def _shut(self) -> None:
        self._follow_fork()
        self._threads.shutdown()
        if self._producer is not None:
            self._producer.close()
