"""One attempt of a task that writes: batches in, counts and rejects out.

    Arrow batch ─▶ Packer ─▶ by shard, in short calls ─▶ store: accepted, duplicate, ...
                      └── refused ───────────────────────┴─▶ Rejects

Every row ends in one count. Calls are idempotent by id, so that an attempt may be repeated, or run
twice at once.
"""

import time
from collections import Counter
from collections.abc import Sequence

import msgspec
import pyarrow as pa

from duebridge.config.models import Route
from duebridge.durations import format_instant, format_ms
from duebridge.store.batching import Pace, batches
from duebridge.store.connection import Connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.record import PackedRow
from duebridge.store.replies import ScheduleAnswer, ScheduleReply
from duebridge.store.routes import shard_number
from duebridge_connectors.spark.options import WriteOptions
from duebridge_connectors.spark.packing import Packer
from duebridge_connectors.spark.place import Place
from duebridge_connectors.spark.rejects import Rejects
from duebridge_connectors.spark.summary import Summary

ROW_BYTES = 128  # of a row beside its id and blob, at most
_STORED: tuple[ScheduleAnswer, ...] = ("accepted", "duplicate", "replaced", "cancelled")


class Job(msgspec.Struct, frozen=True):
    """What every task of a write needs."""

    options: WriteOptions
    place: Place
    route: Route
    shards: int
    broker_type: str
    run: str


class Loader:
    """Writes the batches of one attempt."""

    def __init__(self, job: Job, connection: Connection, rejects: Rejects) -> None:
        options, place = job.options, job.place
        self._job = job
        self._rejects = rejects
        self._counts: Counter[str] = Counter()
        self._packer = Packer(job.route, job.broker_type, options.remember, options.id_columns)
        self._stores = [
            DelayStore(
                connection,
                Shard(place.namespace, job.route.name, number),
                repeat_for_s=place.repeat_for_s,
            )
            for number in range(job.shards)
        ]
        rate = options.rows_per_second
        self._pace = rate and Pace(connection, place.namespace, job.run, rate)

    def load(self, batch: pa.RecordBatch) -> None:
        """Write one batch; raises `StoreError`, and then some of it may be stored."""
        if self._is_over():
            self._counts["skipped"] += batch.num_rows
            return
        rows, refusals = self._packer.pack(batch)
        refused = {place: ("refused", why) for place, why in refusals.items()}
        self._counts["refused"] += len(refusals)
        for number, places in enumerate(self._by_shard(rows)):
            for call in batches(places, lambda place: _size_bytes(rows[place])):
                refused |= self._send(self._stores[number], rows, call)
        self._rejects.keep(batch, refused)

    def summary(self) -> Summary:
        """Return what became of the rows."""
        first = self._rejects.first_reason
        return Summary(route=self._job.route.name, first_reason=first, **self._counts)

    def _is_over(self) -> bool:
        most = self._job.options.max_rejects
        return most is not None and self._rejects.count > most

    def _by_shard(self, rows: Sequence[PackedRow | None]) -> list[list[int]]:
        shards = self._job.shards
        if shards == 1:
            return [[place for place, row in enumerate(rows) if row is not None]]
        found: list[list[int]] = [[] for _ in range(shards)]
        for place, row in enumerate(rows):
            if row is not None:
                found[shard_number(row.id, shards)].append(place)
        return found

    def _send(
        self, store: DelayStore, rows: Sequence[PackedRow | None], places: list[int]
    ) -> dict[int, tuple[str, str]]:
        """Store the rows of these places, and return those that the store did not take."""
        refused: dict[int, tuple[str, str]] = {}
        while places:
            now = self._granted(places)
            places = places[len(now) :]
            answers = store.schedule(
                [row for place in now if (row := rows[place])],
                max_delay_ms=self._job.route.max_delay,
                replace=self._job.options.on_conflict == "replace",
                keeps_answer=False,
            )
            counts = Counter(answer.status for answer in answers)
            for stored in _STORED:
                self._counts[stored] += counts.pop(stored, 0)
            if counts:
                refused |= self._refused(now, answers)
        return refused

    def _granted(self, places: list[int]) -> list[int]:
        """Return the first of these places, as many as the rate allows; waits for one at least."""
        if not self._pace:
            return places
        while True:
            units, wait_ms = self._pace.take(len(places))
            if units:
                return places[:units]
            time.sleep(wait_ms / 1000)

    def _refused(
        self, places: list[int], answers: list[ScheduleReply]
    ) -> dict[int, tuple[str, str]]:
        refused: dict[int, tuple[str, str]] = {}
        for place, answer in zip(places, answers, strict=True):
            if answer.status not in _STORED:
                status, why = self._why(answer.status, answer.due_at_ms)
                self._counts[status] += 1
                refused[place] = status, why
        return refused

    def _why(self, answer: str, due_ms: int) -> tuple[str, str]:
        """Return the count that an answer belongs to, and what a person is told."""
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


def _size_bytes(row: PackedRow | None) -> int:
    return ROW_BYTES + (len(row.id) * 4 + len(row.blob) if row else 0)
