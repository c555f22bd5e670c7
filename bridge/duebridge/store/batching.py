"""Sizes and ids of calls, and a rate that many processes share.

A script blocks the server while it runs, so that calls are kept short.
"""

import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, NamedTuple, TypeVar

from duebridge.config.fields import checked_name
from duebridge.store.server.connection import Connection
from duebridge.store.server.errors import translated_errors

Item = TypeVar("Item")
Answer = TypeVar("Answer")

CALL_BYTES = 512 * 1024  # 1 MiB takes the server up to 9 ms, 4 MiB up to 18
SCHEDULE_BYTES = 256 * 1024  # to write them takes longer than to read them
SCHEDULE_ROWS = 125  # twice as many take the server beyond 5 ms where a million are due at once
CALL_ROWS = 250  # of calls that claim, settle, drop or replay, for the same reason
PROMOTE_ROWS = 500  # a promotion only moves ids from one index to another
SLOW_PER_SECOND = 100  # below it a rate's window is a whole second
WINDOW_MS = 100
CALL_ID_BYTES = 12
NONCE_BYTES = 8


class Batches(Generic[Item]):
    """Cuts items into batches of the size of one schedule call, in their order."""

    def __init__(self, size_bytes: Callable[[Item], int]) -> None:
        self.ahead: list[Item] = []
        """What was read, and is in no batch yet: after a batch at most one item."""
        self._size_bytes = size_bytes
        self._size = 0

    def add(self, item: Item) -> list[Item]:
        """Take an item; return the batch that is full now, an empty list if none is."""
        more = self._size_bytes(item)
        full = self.rest() if self._size + more > SCHEDULE_BYTES else []
        self.ahead.append(item)
        self._size += more
        return self.rest() if len(self.ahead) == SCHEDULE_ROWS else full

    def rest(self) -> list[Item]:
        """Return the last batch, an empty list if there is none."""
        batch, self.ahead, self._size = self.ahead, [], 0
        return batch

    def of(self, items: Iterable[Item]) -> Iterator[list[Item]]:
        """Yield the batches of items; reads one ahead only where the bytes end a batch."""
        for item in items:
            if full := self.add(item):
                yield full
        if rest := self.rest():
            yield rest


def batches(items: Iterable[Item], size_bytes: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield the items in order, in batches of the size of one schedule call."""
    return Batches(size_bytes).of(items)


def batch_slices(sizes: Sequence[int]) -> Iterator[slice]:
    """Yield where `batches` cuts items of these sizes; no call for each of thousands of rows."""
    ends = [0, *accumulate(sizes)]
    start = 0
    while start < len(sizes):
        fitting = bisect_right(ends, ends[start] + SCHEDULE_BYTES) - 1
        end = max(start + 1, min(fitting, start + SCHEDULE_ROWS))
        yield slice(start, end)
        start = end


def in_calls(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield the items in order, in slices of the size of one call."""
    return (items[at : at + CALL_ROWS] for at in range(0, len(items), CALL_ROWS))


def answers_of(
    rows: Sequence[Item], call: Callable[[Sequence[Item]], list[Answer]]
) -> Iterator[Answer]:
    """Yield the answers for all rows, as they come; a call may leave the last ones to the next."""
    count = 0
    while True:
        answers = call(rows[count:])
        yield from answers
        count += len(answers)
        if count >= len(rows):
            return


class CallId(NamedTuple):
    """An id by which the store knows a repeated call, and how long it does, in ms."""

    id: bytes
    keep_ms: int


def new_call_id() -> bytes:
    """Return an id by which the store knows a repeated call."""
    return secrets.token_bytes(CALL_ID_BYTES)


def new_nonce() -> bytes:
    """Return the random part of the tokens that a call gives out."""
    return secrets.token_bytes(NONCE_BYTES)


class Grant(NamedTuple):
    """The units that may go now, and the time until the window ends."""

    units: int
    wait_ms: int


class SharedRate:
    """At most `per_second` units, shared by all processes that name the same pace.

    The units of a window of time are counted in the store; the server ends the window, so that no
    process' clock matters.
    """

    def __init__(self, connection: Connection, namespace: str, name: str, per_second: int) -> None:
        self._client: Any = connection.client
        self._key = f"{{{checked_name('namespace', namespace)}}}:pace:{name}"
        self._window_ms = 1000 if per_second < SLOW_PER_SECOND else WINDOW_MS
        self._units = per_second * self._window_ms // 1000

    def take(self, units: int) -> Grant:
        """Take up to `units` of this window; none may be left. Raises `StoreError`."""
        with translated_errors(), self._client.pipeline(transaction=True) as pipe:
            pipe.set(self._key, 0, px=self._window_ms, nx=True)
            pipe.incrby(self._key, units)
            pipe.pttl(self._key)
            _, taken, wait_ms = pipe.execute()
        return Grant(max(0, min(units, self._units - (taken - units))), max(1, wait_ms))
