"""Parquet files of the cold tier, written and read by tasks with Arrow.

rows sorted by hour ─▶ a file per hour ─▶ read back, compared ─▶ its name and number of rows

Each attempt of a task writes its own files directly into place, and a file counts once the log has
its commit. So no file is renamed, and files of failed attempts do no harm.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from duebridge.errors import JobFailed
from duebridge_connectors.spark.files.place import Place, place_of
from duebridge_connectors.spark.filesystem import open_filesystem, open_output
from duebridge_connectors.spark.source.arrow import arrow_schema
from duebridge_connectors.spark.source.schema import COLD
from duebridge_connectors.spark.transforms.cold_copies import HOUR

FILE_BYTES = 64 * 1024 * 1024  # of rows in the memory of a task
BATCH_ROWS = 10_000  # small files are joined to batches of this size
WRITTEN = "file string, rows long"
Hour: TypeAlias = tuple[int, pa.RecordBatch]
_AS: dict[str, Any] = {  # files are small, so pages and statistics matter
    "compression": "zstd",
    "use_dictionary": ["batch", "shard"],
    "write_page_checksum": True,
    "write_statistics": ["id", "due_at_ms"],
}


class ColdBatch(NamedTuple):
    """A batch to write: the root of the tier, and the name of the batch."""

    root: Place | str
    name: str


class ColdRead(NamedTuple):
    """A read of files below a root: the columns, and the ids (None: all)."""

    root: Place | str
    columns: StructType
    ids: Sequence[str] | None


def write_hours(batch: ColdBatch, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows sorted by `HOUR`, and yield every verified file (`WRITTEN`).

    Raises `JobFailed` if a file reads back differently.
    """
    for hour, parts in groupby(_by_hour(rows), key=lambda pair: pair[0]):
        for table in _tables(part for _, part in parts):
            file = _file(batch, hour)
            write_table(batch.root, file, table)
            yield pa.RecordBatch.from_pydict({"file": [file], "rows": [table.num_rows]})


def read_files(read: ColdRead, names: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the named files; `JobFailed` names a file that cannot be read."""
    schema = arrow_schema(read.columns)
    ids = None if read.ids is None else pa.array(read.ids, pa.string())
    files, root = open_filesystem(read.root)
    tables = (
        table.select(schema.names).cast(schema)
        for batch in names
        for name in batch.column(0).to_pylist()
        for table in _groups(files, f"{root}/{name}", schema.names, ids)
    )
    gathered: list[pa.Table] = []
    for table in tables:
        gathered.append(table)
        if sum(part.num_rows for part in gathered) >= BATCH_ROWS:
            yield from pa.concat_tables(gathered).combine_chunks().to_batches(BATCH_ROWS)
            gathered = []
    if gathered:
        yield from pa.concat_tables(gathered).combine_chunks().to_batches(BATCH_ROWS)


def _by_hour(rows: Iterable[pa.RecordBatch]) -> Iterator[Hour]:
    for batch in rows:
        runs = pc.run_end_encode(batch.column(HOUR))
        begin = 0
        for hour, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield hour, batch.slice(begin, end - begin)
            begin = end


def _tables(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of an hour with the columns of the tier, up to `FILE_BYTES` at a time."""
    gathered: list[pa.RecordBatch] = []
    schema = arrow_schema(COLD)
    for part in parts:
        gathered.append(part)
        if sum(part.nbytes for part in gathered) >= FILE_BYTES:
            yield pa.Table.from_batches(gathered).select(schema.names).cast(schema)
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered).select(schema.names).cast(schema)


def write_table(root: Place | str, file: str, rows: pa.Table) -> None:
    """Write a file below a root; raises `JobFailed` if it reads back differently."""
    files, path = open_filesystem(root)
    with open_output(place_of(root) / file) as stream:
        pq.write_table(rows, stream, **_AS)
    found = list(_groups(files, f"{path}/{file}", rows.schema.names, None))
    if not pa.concat_tables([rows.schema.empty_table(), *found]).equals(rows):
        text = f"expected to read back the {rows.num_rows} rows written; got others"
        raise JobFailed(f"{root}/{file}: {text}: nothing is moved")


def _file(batch: ColdBatch, hour: int) -> str:
    at = datetime.fromtimestamp(hour * 3600, UTC)
    folder = f"batch={batch.name}/due_date={at:%Y-%m-%d}/due_hour={at.hour}"
    return f"{folder}/{uuid4().hex}.parquet"


def _groups(files: Any, path: str, columns: Sequence[str], ids: Any) -> Iterator[pa.Table]:
    """Yield a file's row groups; with ids, only groups and rows that have one of them."""
    with readable(path), files.open_input_file(path) as stream:
        file = pq.ParquetFile(stream, page_checksum_verification=True)
        for number in range(file.num_row_groups):
            if ids is None:
                yield file.read_row_group(number, columns)
                continue
            mask = pc.is_in(file.read_row_group(number, ["id"]).column(0), ids)
            if pc.any(mask).as_py():
                yield file.read_row_group(number, columns).filter(mask)


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Raise `JobFailed` with the file's name where it is missing or damaged."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        cause = " ".join(str(error).split())
        text = f"{path}: expected a whole Parquet file of the cold tier; got: {cause}"
        raise JobFailed(
            f"{text}; nothing is lost: restore the file and run the job again"
        ) from error
