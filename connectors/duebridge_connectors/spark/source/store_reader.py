"""Batch reader: the envelopes of a store as rows, in slices of about equal size.

A task reads its slice page by page with `DelayStore.list`, one short read-only call each, and
pauses between pages if asked to. An envelope that changes its state meanwhile may appear twice or
not at all; every other one appears once.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.msgpack import Ext
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from duebridge.amqp_fields import field_bytes
from duebridge.envelope import HeaderValue
from duebridge.ports.publisher import reason_word
from duebridge.store.calls.reading_calls import Split
from duebridge.store.due_window import ANY_TIME, DueWindow
from duebridge.store.keys import Shard
from duebridge.store.server.connection import Connection
from duebridge.store.wire.packed_page import PackedPage
from duebridge.store.wire.poll import BEYOND_ANY_TIME, NONE
from duebridge.store.wire.record import EnvelopeContent
from duebridge.store.wire.replies import Entry, Page
from duebridge_connectors.spark.rows.arrow import (
    arrow_schema,
    column_batch,
    record_batch,
    timestamp_ms,
)
from duebridge_connectors.spark.rows.schema import DECODED, PACKED
from duebridge_connectors.spark.source.message_first import message_first
from duebridge_connectors.spark.source.options import ReadOptions
from duebridge_connectors.spark.source.planning import StoreAddress
from duebridge_connectors.spark.source.pushdown import both, push
from duebridge_connectors.spark.source.slices import (
    SLICE_ROWS,
    RowSpan,
    ShardState,
    StoreSlice,
    divide,
)

_NOTHING = EnvelopeContent(body=None)
_INSTANTS = ("due_at", "scheduled_at", "expires_at")
_NUMBERS = ("remember_ms", "generation", "content_hash", "blob")


class StoreReader(DataSourceReader):
    """Reader of `spark.read`."""

    def __init__(
        self, options: ReadOptions, address: StoreAddress, shards: Sequence[Shard]
    ) -> None:
        before = options.due_before
        self._options = options
        self._address = address
        self._shards = list(shards)
        self._states = [*options.state]
        self._window = DueWindow(options.due_after, None if before is None else before - 1)

    def partitions(self) -> list[StoreSlice]:
        """Return the slices; `ready` includes the suspects. Raises `StoreError`."""
        states = [*self._states, *(["suspect"] if "ready" in self._states else [])]
        with message_first(), self._address.connect() as connection:
            stores = {shard: self._address.delay_store(connection, shard) for shard in self._shards}

            def split(shard: Shard, state: str, most: int) -> Split:
                bounds = self._window if state == "pending" else ANY_TIME
                return stores[shard].split(state, most, *bounds)

            options = self._options
            places = [
                ShardState(shard, state, split(shard, state, SLICE_ROWS).rows)
                for shard in self._shards
                for state in states
            ]
            return divide(places, split, options.min_partitions, options.max_connections)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a slice, one batch for each page; raises `StoreError`."""
        if not isinstance(partition, StoreSlice):  # Spark asks for one even if there is none
            return
        with message_first(), self._address.connect_task() as connection:
            for span in partition.spans:
                yield from self._pages(connection, span)

    def _pages(self, connection: Connection, span: RowSpan) -> Iterator[pa.RecordBatch]:
        store = self._address.delay_store(connection, span.shard)
        listed = store.list_packed if self._options.content == "packed" else store.list
        from_ms, to_ms = self._window if span.state == "pending" else ANY_TIME
        if span.until is not None and span.until[1] != NONE:
            to_ms = min(span.until[1], BEYOND_ANY_TIME if to_ms is None else to_ms)
        cursor = span.after
        while True:
            page = listed(
                span.state,
                limit=self._options.page,
                cursor=cursor,
                due_from_ms=from_ms if cursor is None else None,
                due_to_ms=to_ms,
            )
            if page.cursor is None:
                return
            yield self._batch(span, page)
            if span.ends_with(*page.cursor):
                return
            cursor = page.cursor
            if self._options.pause:  # even sleep(0) yields the core
                time.sleep(self._options.pause / 1000)

    def _batch(self, span: RowSpan, page: Page | PackedPage) -> pa.RecordBatch:
        if isinstance(page, PackedPage):
            return packed_batch(span, self._window, page)
        ids = [entry.id for entry in page.entries]
        count = span.count_in_page(ids, [entry.score_ms for entry in page.entries])
        found = (entry for entry in page.entries[:count] if self._window.has(entry))
        rows = [_decoded(span.shard, entry) for entry in found]
        return record_batch(arrow_schema(DECODED), rows)


class FilteringReader(StoreReader):
    """A reader for Spark where it pushes filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Leave out shards, states and due instants that a filter excludes."""
        pushed = push(filters, ("route", "shard", "state"))
        self._shards = pushed.shards(self._shards)
        self._states = [state for state in self._states if pushed.has("state", state)]
        self._window = both(self._window, pushed.window)
        return pushed.rest


def packed_batch(span: RowSpan, window: DueWindow, page: PackedPage) -> pa.RecordBatch:
    """Return the rows of a page that are in a span, and due within a window, column by column."""
    columns = {"id": page.ids, "route": span.shard.route, "shard": span.shard.number}
    columns |= {name: getattr(page.records, name) for name in _NUMBERS} | {"state": page.state}
    columns |= {name: _instants(getattr(page.records, f"{name}_ms")) for name in _INSTANTS}
    rows = column_batch(arrow_schema(PACKED), len(page.ids), columns)
    return _due_within(rows.slice(0, span.count_in_page(page.ids, page.scores_ms)), window)


def _instants(column: Sequence[int | None]) -> list[int | None]:
    """Return instants with null for none."""
    return [each or None for each in column]


def _due_within(rows: pa.RecordBatch, window: DueWindow) -> pa.RecordBatch:
    for bound_ms, compare in zip(window, (pc.greater_equal, pc.less_equal), strict=True):
        if bound_ms is not None:
            rows = rows.filter(compare(rows.column("due_at"), timestamp_ms(bound_ms)))
    return rows


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
