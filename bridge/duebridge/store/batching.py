"""How much one call brings to the store or takes from it: a script that is short delays nobody."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")

CALL_BYTES = 512 * 1024  # 1 MiB takes the server up to 9 ms, 4 MiB up to 18
SCHEDULE_ROWS = 125  # twice as many take the server beyond 5 ms where a million are due at once
CALL_ROWS = 250  # of what claims, settles, drops or replays, for the same reason
PROMOTE_ROWS = 500  # these only move from one index to another


def batches(items: Iterable[Item], size_bytes: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield all, in order, as many together as one schedule call should have."""
    batch: list[Item] = []
    size = 0
    for item in items:
        more = size_bytes(item)
        if batch and (len(batch) == SCHEDULE_ROWS or size + more > CALL_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    if batch:
        yield batch


def in_calls(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield all, in order, as many together as one call should have of them."""
    return (items[at : at + CALL_ROWS] for at in range(0, len(items), CALL_ROWS))
