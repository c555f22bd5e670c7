"""Batch reader: the envelopes of a store as rows, with a task for each shard and state.

A task reads its state page by page with `DelayStore.list`, one short read-only call each, and
pauses between pages if asked to. An envelope that changes its state meanwhile may appear twice or
not at all; every other one appears once.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.msgpack import Ext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from duebridge.admin.listing import DueWindow
from duebridge.amqp_fields import field_bytes
from duebridge.envelope import HeaderValue
from duebridge.ports.publisher import reason_word
from duebridge.store.keys import Shard
from duebridge.store.server.connection import Connection
from duebridge.store.wire.poll import BEYOND_ANY_TIME, NONE
from duebridge.store.wire.record import Content
from duebridge.store.wire.replies import Entry
from duebridge_connectors.spark.source.arrow import arrow_schema, record_batch
from duebridge_connectors.spark.source.options import ReadOptions
from duebridge_connectors.spark.source.planning import StoreAddress
from duebridge_connectors.spark.source.schema import DECODED, PACKED

_NOTHING = Content(body=None)
_PACKED = ("due_at_ms", "scheduled_at_ms", "expires_at_ms", "remember_ms", "generation",
           "content_hash", "blob")  # fmt: skip


@dataclass(frozen=True)
class StoreSlice(InputPartition):
    """The envelopes of one shard in one state: the partition of a task."""

    shard: Shard
    state: str


class StoreReader(DataSourceReader):
    """Reader of `spark.read`."""

    def __init__(
        self, options: ReadOptions, address: StoreAddress, shards: Sequence[Shard]
    ) -> None:
        is_packed = options.content == "packed"
        self._options = options
        self._address = address
        self._shards = shards
        self._row: Callable[[Shard, Entry], tuple[Any, ...]] = _packed if is_packed else _decoded
        self._columns = PACKED if is_packed else DECODED

    def partitions(self) -> list[StoreSlice]:
        """Return a slice for each shard and state; `ready` includes the suspects."""
        states = [*self._options.state]
        if "ready" in states:
            states.append("suspect")
        return [StoreSlice(shard, state) for shard in self._shards for state in states]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a slice, one batch for each page; raises `StoreError`."""
        if not isinstance(partition, StoreSlice):  # Spark asks for one even if there is none
            return
        schema = arrow_schema(self._columns)
        shard = partition.shard
        with self._address.connect() as connection:
            for entries in self._pages(connection, partition):
                yield record_batch(schema, [self._row(shard, entry) for entry in entries])

    def _pages(self, connection: Connection, part: StoreSlice) -> Iterator[list[Entry]]:
        options = self._options
        before = options.due_before
        window = DueWindow(options.due_after, None if before is None else before - 1)
        sought = window if part.state == "pending" else DueWindow()
        store = self._address.delay_store(connection, part.shard)
        cursor: tuple[str, int] | None = None
        while True:
            page = store.list(
                part.state,
                limit=options.page,
                cursor=cursor,
                due_from_ms=None if cursor else sought.from_ms,
                due_to_ms=sought.to_ms,
            )
            if page.cursor is None:
                return
            yield [entry for entry in page.entries if window.has(entry)]
            cursor = page.cursor
            if options.pause:  # even sleep(0) yields the core
                time.sleep(options.pause / 1000)


def _decoded(shard: Shard, entry: Entry) -> tuple[Any, ...]:
    record, flight, content = entry.record, entry.flight, entry.content or _NOTHING
    waits_for_ms = entry.score_ms if NONE < entry.score_ms < BEYOND_ANY_TIME else None
    return (
        *(entry.id, shard.route, shard.number, entry.state),
        *(record and record.due_at_ms, waits_for_ms, record and record.scheduled_at_ms),
        *(record and record.expires_at_ms, record and record.remember_ms),
        *(record and record.generation, content.body, content.key),
        [(name, _header_bytes(value)) for name, value in content.headers],
        content.max_attempts,
        content.target and content.target.as_dict(),
        content.properties and _properties(content.properties),
        *(flight.attempt, flight.failures, flight.expiries),
        reason_word(flight.reason) if flight.reason else None,
        "RecordDamaged" if entry.damage else flight.error_class,
        entry.damage or flight.error_message,
        *(flight.first_failed_at_ms, flight.last_failed_at_ms),
    )


def _packed(shard: Shard, entry: Entry) -> tuple[Any, ...]:
    place = (entry.id, shard.route, shard.number, entry.state)
    return (*place, *(entry.record and getattr(entry.record, name) for name in _PACKED))


def _header_bytes(value: HeaderValue) -> bytes | None:
    """Return a header's value as Kafka transports it."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, Ext):
        return field_bytes(value)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.encode()


def _properties(properties: Any) -> list[tuple[str, str]]:
    given = msgspec.structs.asdict(properties)
    return [(name, str(value)) for name, value in given.items() if value is not None]
