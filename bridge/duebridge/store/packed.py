"""An envelope as the schedule script takes it, and the arguments of such a call."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from duebridge.store.connection import Argument


class PackedRow(NamedTuple):
    """An envelope as the script takes it.

    `due` and `expires` are `+15000` or epoch ms, `expires` "" for never. `content_hash` and `blob`
    are `duebridge.store.codec.pack`'s. `generation` is 0, or that of a cold row, which
    obeys tombstones.
    """

    id: str
    due: str
    expires: str
    remember_ms: int
    content_hash: bytes
    generation: int
    blob: bytes


def schedule_arguments(
    rows: Sequence[PackedRow], *, max_delay_ms: int, replace: bool, call_id: bytes, keep_ms: int
) -> list[Argument]:
    """Return what the script is given after its standard arguments."""
    fields: Iterable[Any] = chain.from_iterable(rows)
    return [max_delay_ms, int(replace), call_id, keep_ms, len(rows), *fields]
