"""One attempt of a write task: Arrow batches in, counts and rejects out.

    Arrow batch ─▶ Packer ─┬▶ by shard, in short calls ─▶ store: accepted, duplicate, ...
                           └── refused ───────────────────┴─▶ RejectWriter
     the task's thread     │  a thread that sends

While the store works on one batch, the task packs the next one; no third one is begun.
Every row adds to exactly one count of the `Summary`. Calls are idempotent by id, so an attempt may
be repeated, or run twice at once.
"""

import gc
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from operator import attrgetter
from typing import Self

import msgspec
import pyarrow as pa

from duebridge.durations import format_instant, format_ms
from duebridge.store.batching import SharedRate, batch_slices
from duebridge.store.delay_store import DelayStore
from duebridge.store.routing import shard_number
from duebridge.store.server.connection import Connection
from duebridge.store.wire.packed_row import PackedRow
from duebridge.store.wire.replies import ScheduleAnswer, ScheduleReply
from duebridge.store.wire.transitions import ScheduleMode
from duebridge_connectors.spark.rows.repacking import PackedBatch
from duebridge_connectors.spark.source.planning import WriteJob
from duebridge_connectors.spark.source.rejects import RejectWriter


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a write: every row is in exactly one.

    `cold`: due beyond the horizon, written directly to the cold tier. `duplicate`: stored before,
    by an earlier run or another attempt of the task. `cancelled` and `dead`: remembered as ended
    so, and not brought back; `cancelled` is also a cold row with a tombstone. `refused`, `conflict`
    and `in_flight`: not stored, and written to the rejects. `skipped`: not attempted, past
    `max_rejects`.
    """

    route: str
    accepted: int = 0
    cold: int = 0
    replaced: int = 0
    duplicate: int = 0
    cancelled: int = 0
    dead: int = 0
    refused: int = 0
    conflict: int = 0
    in_flight: int = 0
    skipped: int = 0
    first_reason: str = ""

    @property
    def rows(self) -> int:
        """The sum of all counts."""
        return sum(getattr(self, name) for name in COUNTS)

    @property
    def rejects(self) -> int:
        """The number of rows that went to the rejects."""
        return self.refused + self.conflict + self.in_flight

    @classmethod
    def of(cls, route: str, parts: Iterable["Summary"]) -> Self:
        """Return the sum of the tasks' counts."""
        found = list(parts)
        counts = {name: sum(getattr(part, name) for part in found) for name in COUNTS}
        first = next((part.first_reason for part in found if part.first_reason), "")
        return cls(route=route, first_reason=first, **counts)

    def __str__(self) -> str:
        counts = format_counts(self, COUNTS)
        changed = "" if self.accepted or self.cold or self.replaced else "; nothing was changed"
        first = f"; the first reject: {self.first_reason}" if self.first_reason else ""
        return f"route {self.route}: {self.rows:,} rows: {counts or 'none'}{changed}{first}"


def format_counts(counts: msgspec.Struct, names: Iterable[str]) -> str:
    """Return these counts for people, without zeros."""
    found = ((name.replace("_", " "), getattr(counts, name)) for name in names)
    return ", ".join(f"{count:,} {name}" for name, count in found if count)


COUNTS = tuple(name for name in Summary.__struct_fields__ if name not in ("route", "first_reason"))

TURN_S = 0.0005  # Python's 5 ms, which the thread that packs would keep a reply waiting, is 3 calls
ROW_BYTES = 128  # upper bound of a row without its id and content
_DONE: tuple[ScheduleAnswer, ...] = ("accepted", "duplicate", "replaced", "cancelled", "dead")
_STATUS = attrgetter("status")


class Loader:
    """Writes the batches of one attempt of a task: `with Loader(...) as loader`.

    The end of the block waits for what is being sent; `finish` also raises what went wrong with it.
    """

    def __init__(self, job: WriteJob, connection: Connection, rejects: RejectWriter) -> None:
        options, address, route = job.options, job.address, job.route
        self._job = job
        self._rejects = rejects
        self._counts: Counter[str] = Counter()
        self._packer = job.packer()
        cold_ms = 0 if route.cold_tier is None else route.max_delay
        self._stores = address.delay_stores(connection, route.name, job.shards, cold_ms)
        rate = options.rows_per_second
        self._pace = rate and SharedRate(connection, address.namespace, job.run, rate)
        self._sender = ThreadPoolExecutor(1, "duebridge-sender")
        self._sent: Future[None] | None = None

    def __enter__(self) -> Self:
        self._interval_s = sys.getswitchinterval()
        sys.setswitchinterval(TURN_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._sender.shutdown(wait=True)
        sys.setswitchinterval(self._interval_s)

    def load(self, batch: pa.RecordBatch) -> None:
        """Pack one batch, and send it; raises `StoreError` of the batch before.

        After an error a part of the rows may be stored.
        """
        with _collector_paused():
            packed = self._packer.pack(batch)
        self.finish()
        self._sent = self._sender.submit(self._store, batch, packed)

    def finish(self) -> None:
        """Wait for what is being sent; raises `StoreError`, as `load` does."""
        if self._sent is not None:
            self._sent.result()

    def _store(self, batch: pa.RecordBatch, packed: PackedBatch) -> None:
        if self._is_over():
            self._counts["skipped"] += batch.num_rows
            return
        rows, refusals = packed
        refused = {index: ("refused", why) for index, why in refusals.items()}
        self._counts["refused"] += len(refusals)
        sizes = _sizes_bytes(rows)
        for number, indices in enumerate(self._by_shard(rows)):
            for call in batch_slices([*map(sizes.__getitem__, indices)]):
                refused |= self._send(self._stores[number], rows, indices[call])
        self._rejects.add(batch, refused)

    def summary(self) -> Summary:
        """Return the counts; of all batches after `finish`."""
        first = self._rejects.first_reason
        return Summary(route=self._job.route.name, first_reason=first, **self._counts)

    def _is_over(self) -> bool:
        most = self._job.options.max_rejects
        return most is not None and self._rejects.count > most

    def _by_shard(self, rows: Sequence[PackedRow | None]) -> list[list[int]]:
        shards, given = self._job.shards, _by_due(rows)
        if shards == 1:
            return [given]
        found: list[list[int]] = [[] for _ in range(shards)]
        for index in given:
            if row := rows[index]:
                found[shard_number(row.id, shards)].append(index)
        return found

    def _send(
        self, store: DelayStore, rows: Sequence[PackedRow | None], indices: list[int]
    ) -> dict[int, tuple[str, str]]:
        """Store the rows of these indices; return status and reason of those that were refused."""
        refused: dict[int, tuple[str, str]] = {}
        while indices:
            now = self._granted(indices)
            indices = indices[len(now) :]
            answers = store.schedule(
                [row for index in now if (row := rows[index])],
                max_delay_ms=self._job.route.max_delay,
                mode=self._mode(),
                keeps_answer=False,
                lease=self._job.options.cold_lease,
            )
            counts = Counter(map(_STATUS, answers))
            for done in _DONE:
                self._counts[done] += counts.pop(done, 0)
            if counts:
                refused |= self._refused(now, answers)
        return refused

    def _mode(self) -> ScheduleMode:
        """Return the mode of all calls: a job that runs again brings nothing back."""
        if self._job.options.on_conflict == "replace":
            return "replace_living"
        return "once" if self._job.options.id_use == "once" else "refuse"

    def _granted(self, indices: list[int]) -> list[int]:
        """Return as many of these as the rate allows; wait until that is at least one."""
        if not self._pace:
            return indices
        while True:
            units, wait_ms = self._pace.take(len(indices))
            if units:
                return indices[:units]
            time.sleep(wait_ms / 1000)

    def _refused(
        self, indices: list[int], answers: Sequence[ScheduleReply]
    ) -> dict[int, tuple[str, str]]:
        refused: dict[int, tuple[str, str]] = {}
        for index, answer in zip(indices, answers, strict=True):
            if answer.status not in _DONE:
                status, why = self._why(answer.status, answer.due_at_ms)
                self._counts[status] += 1
                refused[index] = status, why
        return refused

    def _why(self, answer: str, due_ms: int) -> tuple[str, str]:
        """Return the count that an answer belongs to, and the reason for people."""
        due = format_instant(due_ms)
        if answer == "too_far":
            limit = format_ms(self._job.route.max_delay)
            text = f"due_at: expected within max_delay ({limit}) of now; got {due}"
            return "refused", text
        if answer == "expires_before_due":
            text = "expires: expected an instant after the envelope is due"
            return "refused", f"{text}; it would be due at {due}"
        if answer == "in_flight":
            return answer, "id: expected one that may be replaced; it is being delivered"
        return answer, "id: expected a new one, or the same content; the store has other content"


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector, which would scan thousands of rows that form no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _by_due(rows: Sequence[PackedRow | None]) -> list[int]:
    """Return the rows in the order in which the store inserts them fastest: neighbours together.

    Rows that were refused are left out. The given order stays where an id is there twice: the first
    of its rows wins, or the last.
    """
    given = [index for index, row in enumerate(rows) if row is not None]
    if len({row.id for row in rows if row is not None}) < len(given):
        return given
    return sorted(given, key=[row.head if row else b"" for row in rows].__getitem__)


def _sizes_bytes(rows: Sequence[PackedRow | None]) -> list[int]:
    return [ROW_BYTES + (len(row.id) * 4 + len(row.content) if row else 0) for row in rows]
