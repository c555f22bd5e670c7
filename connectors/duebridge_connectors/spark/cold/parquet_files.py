"""The cold tier's Parquet files, as tasks write and read them: by Arrow.

rows in order of their hour ─▶ a file an hour ─▶ read back, compared ─▶ its name and its rows

Each attempt of a task writes files of its own, in their place, and a file counts once a commit of
the log names it. So nothing is renamed, and what other attempts left is in nobody's way.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from duebridge.errors import JobFailed
from duebridge_connectors.spark.filesystem import open_filesystem
from duebridge_connectors.spark.source.arrow import arrow_schema
from duebridge_connectors.spark.source.schema import COLD

HOUR = "hour"  # since the epoch: what rows to write are in order of
FILE_BYTES = 64 * 1024 * 1024  # of rows that a task has in memory at once
BATCH_ROWS = 10_000  # of many small files as one batch
WRITTEN = "file string, rows long"
Hour: TypeAlias = tuple[int, pa.RecordBatch]
_AS: dict[str, Any] = {  # of small files, each page and each statistic counts
    "compression": "zstd",
    "use_dictionary": ["batch", "shard"],
    "write_page_checksum": True,
    "write_statistics": ["id", "due_at_ms"],
}


class ColdBatch(NamedTuple):
    """Where the tasks of a batch write."""

    root: str
    name: str


class ColdRead(NamedTuple):
    """What tasks read of files below a root: some columns, of some ids or of all."""

    root: str
    columns: StructType
    ids: Sequence[str] | None


def write_hours(batch: ColdBatch, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows in order of `HOUR`, and yield every file (`WRITTEN`) that was read back whole.

    Raises `JobFailed` where one reads otherwise than it was written.
    """
    for hour, parts in groupby(_by_hour(rows), key=lambda each: each[0]):
        for table in _tables(part for _, part in parts):
            file = _file(batch, hour)
            write_table(batch.root, file, table)
            yield pa.RecordBatch.from_pydict({"file": [file], "rows": [table.num_rows]})


def read_files(wanted: ColdRead, names: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files whose names come; damage in a file is an error of Arrow's."""
    schema = arrow_schema(wanted.columns)
    ids = None if wanted.ids is None else pa.array(wanted.ids, pa.string())
    files, root = open_filesystem(wanted.root)
    tables = (
        table.select(schema.names).cast(schema)
        for batch in names
        for name in batch.column(0).to_pylist()
        for table in _groups(files, f"{root}/{name}", schema.names, ids)
    )
    gathered: list[pa.Table] = []
    for table in tables:
        gathered.append(table)
        if sum(each.num_rows for each in gathered) >= BATCH_ROWS:
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
    """Yield an hour's rows as the tier has them, no more at once than memory should have."""
    gathered: list[pa.RecordBatch] = []
    schema = arrow_schema(COLD)
    for part in parts:
        gathered.append(part)
        if sum(each.nbytes for each in gathered) >= FILE_BYTES:
            yield pa.Table.from_batches(gathered).select(schema.names).cast(schema)
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered).select(schema.names).cast(schema)


def write_table(root: str, file: str, rows: pa.Table) -> None:
    """Write a file below a root and read it back; raises `JobFailed` where that is not the same."""
    files, path = open_filesystem(root)
    files.create_dir(f"{path}/{file.rpartition('/')[0]}", recursive=True)
    with files.open_output_stream(f"{path}/{file}") as stream:
        pq.write_table(rows, stream, **_AS)
    found = list(_groups(files, f"{path}/{file}", rows.schema.names, None))
    if not pa.concat_tables([rows.schema.empty_table(), *found]).equals(rows):
        text = f"expected the {rows.num_rows} rows that were written; read others"
        raise JobFailed(f"{root}/{file}: {text}: nothing is moved")


def _file(batch: ColdBatch, hour: int) -> str:
    at = datetime.fromtimestamp(hour * 3600, UTC)
    folder = f"batch={batch.name}/due_date={at:%Y-%m-%d}/due_hour={at.hour}"
    return f"{folder}/{uuid4().hex}.parquet"


def _groups(files: Any, path: str, columns: Sequence[str], ids: Any) -> Iterator[pa.Table]:
    """Yield a file's rows group by group; of some ids, other columns are read where they are."""
    with files.open_input_file(path) as stream:
        file = pq.ParquetFile(stream, page_checksum_verification=True)
        for number in range(file.num_row_groups):
            if ids is None:
                yield file.read_row_group(number, columns)
                continue
            mask = pc.is_in(file.read_row_group(number, ["id"]).column(0), ids)
            if pc.any(mask).as_py():
                yield file.read_row_group(number, columns).filter(mask)
