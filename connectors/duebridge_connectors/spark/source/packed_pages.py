"""Pages of the store as batches of packed rows, column by column: no row is read by itself."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from duebridge.store.due_window import DueWindow
from duebridge.store.wire.packed_page import PackedPage
from duebridge_connectors.spark.rows.arrow import arrow_schema, column_batch, timestamp_ms
from duebridge_connectors.spark.rows.schema import PACKED
from duebridge_connectors.spark.source.slices import RowSpan

_INSTANTS = ("due_at", "scheduled_at", "expires_at")
_NUMBERS = ("remember_ms", "generation", "content_hash", "blob")


def packed_batch(span: RowSpan, window: DueWindow, page: PackedPage) -> pa.RecordBatch:
    """Return the rows of a page that are in a span of the store, and due within a window."""
    there = span.within(page.ids, page.scores_ms)
    columns = {"id": page.ids, "route": span.shard.route, "shard": span.shard.number}
    columns |= {name: getattr(page.records, name) for name in _NUMBERS} | {"state": page.state}
    columns |= {name: _instants(getattr(page.records, f"{name}_ms")) for name in _INSTANTS}
    rows = column_batch(arrow_schema(PACKED), len(page.ids), columns)
    return _due_within(rows.slice(there.start, there.stop - there.start), window)


def _instants(column: Sequence[int | None]) -> list[int | None]:
    """Return instants with null for none."""
    return [each or None for each in column]


def _due_within(rows: pa.RecordBatch, window: DueWindow) -> pa.RecordBatch:
    for bound_ms, compare in zip(window, (pc.greater_equal, pc.less_equal), strict=True):
        if bound_ms is not None:
            rows = rows.filter(compare(rows.column("due_at"), timestamp_ms(bound_ms)))
    return rows
