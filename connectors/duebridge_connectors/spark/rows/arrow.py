"""Arrow batches to Python values and back.

Whole columns are converted at once, which is several times cheaper than row by row.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from duebridge.envelope import HeaderValue
from duebridge_connectors.spark.rows.schema import header_places


def values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Return the values of a column as `python_values` does; all None if it is missing."""
    column = column_or_none(batch, name)
    return [None] * batch.num_rows if column is None else python_values(column)


def python_values(column: Any) -> list[Any]:
    """Return values; bytes of a text that are no UTF-8 become lone surrogates.

    Spark does not validate `cast(binary AS STRING)`. No check of an envelope accepts a surrogate,
    so such a text is refused in its own row.
    """
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        if pa.types.is_struct(column.type):
            return _structs(column)
        raw = as_binary(column).to_pylist()
        return [value if value is None else value.decode(errors="surrogateescape") for value in raw]


def _structs(column: Any) -> list[dict[str, Any] | None]:
    names = [field.name for field in column.type]
    rows = zip(*map(python_values, column.flatten()), strict=True)
    return [
        dict(zip(names, row, strict=True)) if is_valid else None
        for row, is_valid in zip(rows, column.is_valid().to_pylist(), strict=True)
    ]


def byte_strings(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    """Return the values of a column as bytes, text as UTF-8."""
    column = column_or_none(batch, name)
    return [None] * batch.num_rows if column is None else as_binary(column).to_pylist()


def instants_ms(batch: pa.RecordBatch, name: str) -> list[int | None]:
    """Return instants as epoch ms: timestamps rounded up, integers unchanged."""
    column = column_or_none(batch, name)
    if column is None:
        return [None] * batch.num_rows
    if pa.types.is_timestamp(column.type):
        us = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        return [None if value is None else -(-value // 1000) for value in us.to_pylist()]
    return python_values(column)


def header_rows(batch: pa.RecordBatch) -> list[tuple[tuple[str, HeaderValue], ...] | None]:
    """Return the headers of each row as pairs, in order."""
    column = column_or_none(batch, "headers")
    if column is None:
        return [None] * batch.num_rows
    names, of_headers = names_and_values(column)
    pairs = list(zip(python_values(names), python_values(of_headers), strict=True))
    ends = column.offsets.to_pylist()
    found: list[tuple[tuple[str, HeaderValue], ...] | None] = [
        tuple(pairs[start:end]) for start, end in pairwise(ends)
    ]
    if not column.null_count:
        return found
    valid = column.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(found, valid, strict=True)]


def names_and_values(headers: Any) -> tuple[Any, Any]:
    """Return the names of all rows' headers, and their values, one after the other."""
    if pa.types.is_map(headers.type):
        return headers.keys, headers.items
    name, value = header_places([field.name for field in headers.values.type])
    fields = headers.values.flatten()
    return fields[name], fields[value]


def lengths(lists: Any) -> Any:
    """Return how many values each of these lists or maps has."""
    return pc.subtract(lists.offsets[1:], lists.offsets[:-1])


def sums(lists: Any, numbers: Any) -> Any:
    """Return for each of these lists or maps the sum of its part of `numbers`."""
    totals = pc.cumulative_sum(numbers.cast(pa.int64()))
    ends = pa.concat_arrays([pa.array([0], pa.int64()), totals]).take(lists.offsets)
    return pc.subtract(ends[1:], ends[:-1])


def column_or_none(batch: pa.RecordBatch, name: str) -> Any:
    """Return a column, None if it is missing."""
    return batch.column(name) if name in batch.schema.names else None


def as_binary(column: Any) -> Any:
    """Return text as UTF-8, and bytes unchanged."""
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def is_sized(column: Any) -> bool:
    """Whether the values are text or bytes."""
    kind = as_binary(column).type
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def has_size(column: Any, least: int, most: int) -> Any:
    """Return which values have `least` to `most` bytes; null for null."""
    sizes = pc.binary_length(column)
    return pc.and_(pc.greater_equal(sizes, least), pc.less_equal(sizes, most))


_MS = pa.timestamp("ms", "UTC")


def timestamp_ms(instant_ms: int) -> pa.Scalar:
    """Return an instant as columns of instants compare with."""
    return pa.scalar(instant_ms, _MS)


def epoch_ms(column: Any) -> Any:
    """Return a column of timestamps as epoch ms, 0 for null."""
    return pc.fill_null(column.cast(_MS).cast(pa.int64()), 0)


def arrow_schema(columns: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects from a reader of these columns."""
    return to_arrow_schema(columns, timezone="UTC")


def record_batch(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return rows as a batch; instants are epoch ms, 0 and None become null."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [_array(field.type, column) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def column_batch(schema: pa.Schema, rows: int, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Return columns as a batch: a sequence of values, or the value of all rows; instants in ms."""
    arrays = [_column(field.type, rows, columns[field.name]) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(kind: pa.DataType, rows: int, value: Any) -> pa.Array:
    stored = _MS if pa.types.is_timestamp(kind) else kind
    if isinstance(value, list | range):
        return pa.array(value, stored).cast(kind)
    return pa.repeat(pa.scalar(value, stored), rows).cast(kind)


def _array(kind: pa.DataType, column: Sequence[Any]) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array([value or None for value in column], _MS).cast(kind)
    return pa.array(column, kind)
