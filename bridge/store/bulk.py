"""Schedules what is packed already, many envelopes a call: the way in for bulk loads.

It is `DelayStore.schedule` without its envelopes: a caller that has packed a row itself, or has the
blob of one from the cold tier, needs none.
"""

import secrets
from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

from bridge.store.connection import Argument, Connection
from bridge.store.delay_store import JOURNAL_CAP_BYTES, KEEP_ANSWER_FACTOR, LEAST_KEPT_ANSWER_MS
from bridge.store.keys import Shard
from bridge.store.scripts import script


class PackedRow(NamedTuple):
    """An envelope as the script takes it.

    `due` and `expires` are `+15000` or epoch ms, `expires` "" for never. `content_hash` and `blob`
    are `bridge.codec.pack`'s. `generation` is 0, or that of a cold row, which obeys tombstones.
    """

    id: str
    due: str
    expires: str
    remember_ms: int
    content_hash: bytes
    generation: int
    blob: bytes


class Answers(NamedTuple):
    """What became of each row, in order: the words of a receipt, and the due instants."""

    statuses: list[bytes]
    dues_ms: list[int]


class BulkStore:
    """One shard, as a bulk load sees it. Raises as `DelayStore` does."""

    def __init__(self, connection: Connection, shard: Shard, repeat_for_s: float = 0.0) -> None:
        self._connection = connection
        self._keys = shard.keys()
        self._repeat_for_s = repeat_for_s

    def schedule(
        self, rows: list[PackedRow], *, max_delay_ms: int, replace: bool = False
    ) -> Answers:
        """Accept rows, all in one step: at most `MAX_BATCH`, of `MAX_BATCH_BYTES` in all.

        A repeat after a lost reply changes nothing. Where every row is remembered and none is
        replaced, the ids alone see to that, and the store keeps no answer: at bulk rates those
        would fill it.
        """
        knows_by_id = not replace and all(row.remember_ms for row in rows)
        is_guarded = self._repeat_for_s > 0 and not knows_by_id
        call_id = secrets.token_bytes(12) if is_guarded else b""
        keep_ms = max(LEAST_KEPT_ANSWER_MS, int(KEEP_ANSWER_FACTOR * self._repeat_for_s * 1000))
        head = ("", JOURNAL_CAP_BYTES, max_delay_ms, int(replace), call_id, keep_ms, len(rows))
        fields: Iterable[Any] = chain.from_iterable(rows)
        arguments: list[Argument] = [*head, *fields]
        reply = self._connection.run(
            script("schedule"), self._keys, arguments, self._repeat_for_s
        ).value
        return Answers(reply[1::2], reply[2::2])
