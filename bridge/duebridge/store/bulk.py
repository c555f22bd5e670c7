"""Schedules what is packed already, many envelopes a call: the way in for bulk loads.

It is `DelayStore.schedule` without its envelopes: a caller that has packed a row itself, or has the
blob of one from the cold tier, needs none.
"""

import secrets
from typing import NamedTuple

from duebridge.store.connection import Connection
from duebridge.store.delay_store import JOURNAL_CAP_BYTES, KEEP_ANSWER_FACTOR, LEAST_KEPT_ANSWER_MS
from duebridge.store.keys import Shard
from duebridge.store.packed import PackedRow, schedule_arguments
from duebridge.store.scripts import script


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
        arguments = schedule_arguments(
            rows, max_delay_ms=max_delay_ms, replace=replace, call_id=call_id, keep_ms=keep_ms
        )
        reply = self._connection.run(
            script("schedule"), self._keys, ["", JOURNAL_CAP_BYTES, *arguments], self._repeat_for_s
        ).value
        return Answers(reply[1::2], reply[2::2])
