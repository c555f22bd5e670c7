"""Reads the row groups of a cold file that have wanted rows, with Arrow and without Spark.

statistics of due ─▶ groups ─▶ due and id of each row ─▶ the other columns of groups with a match
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from duebridge_connectors.spark.cold.parquet.contents import as_tier_columns, content_columns
from duebridge_connectors.spark.filesystem import naming_damage

DUE, ID = "due_at_ms", "id"


class WantedRows(NamedTuple):
    """Rows due from an instant to before another (0: no bound), of some ids (None: of all).

    Of so many shares of a file's row groups it is one: several tasks read a large file.
    """

    from_ms: int = 0
    until_ms: int = 0
    ids: Any = None
    share: int = 0
    shares: int = 1


ALL_ROWS = WantedRows()


def read_groups(
    files: Any, path: str, columns: Sequence[str], wanted: WantedRows = ALL_ROWS
) -> Iterator[pa.Table]:
    """Yield the wanted rows of a file, a row group at a time; contents as blobs.

    Raises `JobFailed`, which names the file, if it is missing or damaged.
    """
    with _named(path), files.open_input_file(path) as stream:
        file = pq.ParquetFile(stream, page_checksum_verification=True)
        names = content_columns(columns, file.schema_arrow)
        for number in range(wanted.share, file.num_row_groups, wanted.shares):
            if not _may_have(file.metadata.row_group(number), wanted):
                continue
            mask = _mask(file, number, wanted)
            if mask is not None and not pc.any(mask).as_py():
                continue
            rows = file.read_row_group(number, names)
            yield as_tier_columns(rows if mask is None else rows.filter(mask), columns)


def read_whole_groups(files: Any, path: str) -> Iterator[pa.Table]:
    """Yield every row group as it is in the file; raises as `read_groups`."""
    with _named(path), files.open_input_file(path) as stream:
        file = pq.ParquetFile(stream, page_checksum_verification=True)
        for number in range(file.num_row_groups):
            yield file.read_row_group(number)


def _may_have(group: Any, wanted: WantedRows) -> bool:
    """Return whether a row group may have rows due in time, by its statistics."""
    if not (wanted.from_ms or wanted.until_ms):
        return True
    parts = (group.column(number) for number in range(group.num_columns))
    due = next((part for part in parts if part.path_in_schema == DUE), None)
    if due is None or due.statistics is None or not due.statistics.has_min_max:
        return True
    is_over = due.statistics.max < wanted.from_ms
    return not is_over and not (wanted.until_ms and due.statistics.min >= wanted.until_ms)


def _mask(file: Any, number: int, wanted: WantedRows) -> Any:
    """Return which rows of a group are wanted; None for all."""
    tests = []
    if wanted.from_ms or wanted.until_ms:
        due = file.read_row_group(number, [DUE]).column(0)
        tests.append(pc.greater_equal(due, wanted.from_ms))
        if wanted.until_ms:
            tests.append(pc.less(due, wanted.until_ms))
    if wanted.ids is not None:
        tests.append(pc.is_in(file.read_row_group(number, [ID]).column(0), wanted.ids))
    if not tests:
        return None
    mask = tests[0]
    for test in tests[1:]:
        mask = pc.and_(mask, test)
    return mask


def _named(path: str) -> AbstractContextManager[None]:
    return naming_damage(path, "the cold tier", "nothing is lost")
