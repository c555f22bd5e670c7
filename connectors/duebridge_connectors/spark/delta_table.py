"""Delta tables without a JVM, at any place that `deltalake` reaches: opened, made, given files.

Two writers are safe because a version is created once. A store that creates it twice would lose one
of them unseen, so a writer is refused there.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from duebridge.errors import ConfigError
from duebridge_connectors.spark.files.location import FileLocation
from duebridge_connectors.spark.filesystem import check_creates_once, delta_options


def opened_table(root: FileLocation | str, expected: str = "a Delta table") -> DeltaTable:
    """Return the newest version of a table; raises `ConfigError` if there is none."""
    try:
        return DeltaTable(str(root), storage_options=delta_options(root))
    except TableNotFoundError as error:
        raise ConfigError(f"{root}: expected {expected}; got none") from error


def written_table(root: FileLocation | str) -> DeltaTable:
    """Return the newest version of a table, to commit the next one; raises `ConfigError`."""
    check_creates_once(root)
    return opened_table(root)


def made_table(
    root: FileLocation | str,
    schema: pa.Schema,
    partitions: list[str],
    configuration: Mapping[str, str],
) -> DeltaTable:
    """Return the newest version of a table, to commit the next one; made empty if there is none.

    Raises `ConfigError`.
    """
    check_creates_once(root)
    return DeltaTable.create(
        str(root),
        schema,
        mode="ignore",
        partition_by=partitions,
        configuration=configuration,
        storage_options=delta_options(root),
    )


def file_statistics(about: pq.FileMetaData, columns: Iterable[str]) -> str:
    """Return a Parquet file's rows and known bounds of columns, as Delta's log has them.

    By these readers leave files out.
    """
    columns_of_file = (about.schema.column(place) for place in range(len(about.schema)))
    places = {column.path: place for place, column in enumerate(columns_of_file)}
    bounds = {name: _bounds(about, places[name]) for name in columns if name in places}
    known = {name: found for name, found in bounds.items() if found is not None}
    return json.dumps(
        {
            "numRecords": about.num_rows,
            "minValues": {name: low for name, (low, _, _) in known.items()},
            "maxValues": {name: high for name, (_, high, _) in known.items()},
            "nullCount": {name: nulls for name, (_, _, nulls) in known.items()},
        },
        default=_instant,
    )


def _bounds(about: pq.FileMetaData, column: int) -> tuple[Any, Any, int] | None:
    """Return the least and the greatest value of a column, and how many it lacks."""
    groups = [
        about.row_group(each).column(column).statistics for each in range(about.num_row_groups)
    ]
    found = [each for each in groups if each is not None and each.has_min_max]
    if not found or len(found) < len(groups):
        return None
    low, high = min(each.min for each in found), max(each.max for each in found)
    if not (_is_bound(low) and _is_bound(high)):
        return None
    return low, high, sum(each.null_count for each in groups)


def _is_bound(value: Any) -> bool:
    """Whether Delta's log can have the value as a bound: readers take none of other types."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int | str | date) or (isinstance(value, float) and isfinite(value))


def _instant(value: Any) -> str:
    if not isinstance(value, datetime):
        return str(value.isoformat())
    return str(value.isoformat(timespec="microseconds")).replace("+00:00", "Z")
