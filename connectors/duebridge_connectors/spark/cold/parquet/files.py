"""Parquet files of the cold tier, written and read by tasks with Arrow.

rows sorted by due ─▶ a file for as many as memory has ─▶ read back, compared ─▶ its name, rows

Each attempt of a task writes its own files directly into place, and a file counts once the log has
its commit. So no file is renamed, and files of failed attempts do no harm. A file may have rows of
many days: its row groups have statistics of due, so a reader of an hour reads few of them.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem
from pyspark.sql.types import StructType

from duebridge.errors import JobFailed
from duebridge.store.routing import shard_number
from duebridge_connectors.spark.cold.parquet.contents import BLOB, with_contents
from duebridge_connectors.spark.cold.parquet.id_filter import SUFFIX, filter_of
from duebridge_connectors.spark.cold.parquet.row_groups import (
    DUE,
    ID,
    WantedRows,
    read_groups,
    read_whole_groups,
)
from duebridge_connectors.spark.cold.parquet.slices import range_folder, read_slice
from duebridge_connectors.spark.files.location import FileLocation, location_of
from duebridge_connectors.spark.filesystem import open_filesystem, open_output, sync_folder
from duebridge_connectors.spark.rows.arrow import arrow_schema
from duebridge_connectors.spark.rows.schema import COLD

Part = TypeVar("Part", pa.RecordBatch, pa.Table)

FILE_BYTES = 64 * 1024 * 1024  # of rows in the memory of a task
GROUP_BYTES, GROUP_ROWS = 4 * 1024 * 1024, 10_000  # of a row group: what an hour's reader reads
BATCH_ROWS = 10_000  # small files are joined to batches of this size
WRITTEN = "file string, rows long"
SHARES = "file string, share int, task int"
_AS: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["batch", "shard"],
    "write_page_checksum": True,
    "write_statistics": [ID, DUE, "generation"],
}


class ColdBatch(NamedTuple):
    """A batch to write: the root of the tier, and the name of the batch."""

    root: FileLocation | str
    name: str


class ColdRead(NamedTuple):
    """A read of files below a root: the columns, the ids (None: all), and the shares of a file.

    Rows have the shard of their id in a route of `shards`; 0: the one that they were written with.
    """

    root: FileLocation | str
    columns: StructType
    ids: Sequence[str] | None
    shares: int = 1
    shards: int = 0


def write_files(batch: ColdBatch, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows sorted by due, and yield every verified file (`WRITTEN`).

    Raises `JobFailed` if a file reads back differently.
    """
    for table in _tables(rows):
        file = new_file(batch.name, table)
        write_table(batch.root, file, table)
        yield pa.RecordBatch.from_pydict({"file": [file], "rows": [table.num_rows]})


def read_files(read: ColdRead, names: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the named slices, of one share each (`SHARES`).

    `JobFailed` names a file that cannot be read.
    """
    schema = arrow_schema(read.columns)
    ids = None if read.ids is None else pa.array(read.ids, pa.string())
    files, root = open_filesystem(read.root)
    parts = (
        (read_slice(row["file"]), row["share"]) for batch in names for row in batch.to_pylist()
    )
    tables = (
        _with_shards(table.select(schema.names).cast(schema), read.shards)
        for (file, from_ms, until_ms), share in parts
        for table in read_groups(
            files,
            f"{root}/{file}",
            schema.names,
            WantedRows(from_ms, until_ms, ids, share, read.shares),
        )
    )
    for gathered in _gathered(tables, attrgetter("num_rows"), BATCH_ROWS):
        yield from pa.concat_tables(gathered).combine_chunks().to_batches(BATCH_ROWS)


def _with_shards(rows: pa.Table, shards: int) -> pa.Table:
    """Return rows with the shards that their ids have in a route of so many; 0: as they are.

    An earlier life of the route, which wrote them, may have had another number.
    """
    place = rows.schema.get_field_index("shard")
    if not shards or place < 0:
        return rows
    numbers = [shard_number(name, shards) for name in rows.column(ID).to_pylist()]
    return rows.set_column(place, rows.schema.field(place), pa.array(numbers, pa.int32()))


def _tables(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield rows with the columns of the tier, up to `FILE_BYTES` at a time."""
    schema = arrow_schema(COLD)
    there = (part for part in parts if part.num_rows)
    for gathered in _gathered(there, attrgetter("nbytes"), FILE_BYTES):
        yield pa.Table.from_batches(gathered).select(schema.names).cast(schema)


def _gathered(
    parts: Iterable[Part], size_of: Callable[[Part], int], enough: int
) -> Iterator[list[Part]]:
    """Yield parts together once their sizes sum up to enough, and what is left at the end."""
    gathered: list[Part] = []
    size = 0
    for part in parts:
        gathered.append(part)
        size += size_of(part)
        if size >= enough:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


def new_file(batch: str, rows: pa.Table) -> str:
    """Return a new name for a file of these rows."""
    due = pc.min_max(rows.column(DUE)).as_py()
    return f"batch={batch}/{range_folder(due['min'], due['max'])}/{uuid4().hex}.parquet"


def write_table(root: FileLocation | str, file: str, rows: pa.Table) -> None:
    """Write a file below a root; raises `JobFailed` if it reads back differently.

    Rows of the tier are written with their contents in columns (`contents.py`), beside a filter of
    their ids (`id_filter.py`).
    """
    files, folder = open_filesystem(root)
    path = f"{folder}/{file}"
    groups = [_stored(group) for group in _groups(rows)]
    if BLOB in rows.schema.names:
        with open_output(location_of(root) / (file + SUFFIX)) as stream:
            stream.write(filter_of(rows.column(ID).to_pylist()))
    with (
        open_output(location_of(root) / file) as stream,
        pq.ParquetWriter(stream, groups[0].schema, **_AS) as writer,
    ):
        for group in groups:
            writer.write_table(group, row_group_size=group.num_rows)
    _settle(files, folder, file)
    found = read_whole_groups(files, path)
    pairs = zip_longest(groups, found)
    if not all(group is not None and group.equals(back) for group, back in pairs):
        text = f"expected to read back the {rows.num_rows} rows written; got others"
        raise JobFailed(f"{root}/{file}: {text}: nothing is moved")


def _settle(files: Any, root: str, file: str) -> None:
    """Bring a file, and the names in all folders from the root to it, to the disk.

    The store is about to forget its rows. Another task may have made a folder.
    """
    if not isinstance(files, LocalFileSystem):
        return
    with open(f"{root}/{file}", "rb") as written:
        os.fsync(written.fileno())
    for folder in Path(file).parents:  # the last is the root, which the log's owner has made
        sync_folder(root / folder)


def _stored(rows: pa.Table) -> pa.Table:
    return with_contents(rows) if BLOB in rows.schema.names else rows


def _groups(rows: pa.Table) -> Iterator[pa.Table]:
    fitting: int = rows.num_rows * GROUP_BYTES // max(1, rows.nbytes)
    size = max(1, min(GROUP_ROWS, fitting))
    for begin in range(0, rows.num_rows, size):
        yield rows.slice(begin, size)
