"""The statistics of a Parquet file as Delta's log has them, by which readers leave files out."""

import json
from collections.abc import Iterable
from datetime import date, datetime
from math import isfinite
from typing import Any

import pyarrow.parquet as pq


def file_statistics(about: pq.FileMetaData, columns: Iterable[str]) -> str:
    """Return a file's number of rows, and the bounds of these columns where they are known."""
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
