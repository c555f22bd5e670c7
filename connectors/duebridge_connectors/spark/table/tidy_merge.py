"""Merges small files of a Delta table, so that no two runs merge the same ones.

`DeltaTable.optimize` does not look whether another run has replaced its files meanwhile: with
deltalake 1.6.6 two at once leave every row twice. A commit that sets a transaction of Delta fails
if another one has set it since the table was opened, so each merge sets `duebridge.tidy`. Appends
at the same time set others, and stand.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from duebridge.errors import ConfigError, JobFailed
from duebridge_connectors.spark.delta_table import written_table
from duebridge_connectors.spark.file_statistics import file_statistics
from duebridge_connectors.spark.files.location import FileLocation
from duebridge_connectors.spark.filesystem import naming_damage, open_filesystem

FILE_BYTES = 128 * 1024 * 1024
SMALL_BYTES = FILE_BYTES // 2
READ_ROWS = 128 * 1024
_MERGE = "duebridge.tidy"
_STATISTICS = "delta.dataSkippingStatsColumns"


class SmallFile(msgspec.Struct, frozen=True):
    """A file to merge; `values` are those of its partition.

    `path` is its name within the table. Delta's log has that percent-encoded, over the escapes that
    the folder of a partition may have; the actions of `deltalake` encode it themselves.
    """

    path: str
    size_bytes: int
    values: dict[str, str | None]

    @property
    def folder(self) -> str:
        """The directory that it is in."""
        return self.path.rpartition("/")[0]

    @property
    def partition(self) -> tuple[str, list[tuple[str, bool, str]]]:
        """Its directory and values: other writers may put several partitions in one directory."""
        values = sorted(self.values.items())
        return self.folder, [(name, value is None, value or "") for name, value in values]


def merge_small_files(root: FileLocation | str) -> tuple[int, int]:
    """Merge the small files of each partition; return how many became how many.

    Raises `JobFailed` if another run of tidy merged meanwhile: then nothing of this partition is.
    """
    merged = into = 0
    for group in _groups(small_files(written_table(root))):
        delta = written_table(root)
        there = {file.path for file in small_files(delta)}
        if {file.path for file in group} <= there:
            _commit(delta, group, _merged(root, delta, group))
            merged, into = merged + len(group), into + 1
    return merged, into


def small_files(delta: DeltaTable) -> list[SmallFile]:
    """Return the small files of a version; raises `ConfigError` for a table of newer features."""
    if delta.protocol().min_reader_version > 1:
        got = f"reader version {delta.protocol().min_reader_version}"
        expected = "expected a table of the oldest protocol (reader version 1)"
        raise ConfigError(
            f"{delta.table_uri}: {expected}; got {got}: use its writer's own OPTIMIZE"
        )
    rows = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    return [
        SmallFile(unquote(row["path"]), row["size_bytes"], _values(row))
        for row in sorted(rows, key=lambda row: (row["modification_time"], row["path"]))
        if row["size_bytes"] < SMALL_BYTES
    ]


def _values(row: dict[str, Any]) -> dict[str, str | None]:
    """Return the values of a file's partition, as Delta's log has them."""
    found = {name: value for name, value in row.items() if name.startswith("partition.")}
    return {
        name.removeprefix("partition."): None if value is None else _logged(value)
        for name, value in found.items()
    }


def _logged(value: Any) -> str:
    """Return a partition's value as Delta's protocol writes it."""
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"
        case bytes():
            return value.decode()  # escaped, as the log has it
    return str(value)


def _groups(files: Iterable[SmallFile]) -> Iterator[list[SmallFile]]:
    """Yield files of one partition that are a file of a good size together."""
    for _, partition in groupby(
        sorted(files, key=attrgetter("partition")), attrgetter("partition")
    ):
        group: list[SmallFile] = []
        for file in partition:
            if sum(each.size_bytes for each in group) + file.size_bytes > FILE_BYTES:
                yield from [group] if len(group) > 1 else []
                group = []
            group.append(file)
        yield from [group] if len(group) > 1 else []


def _merged(root: FileLocation | str, delta: DeltaTable, group: Sequence[SmallFile]) -> AddAction:
    """Write the rows of a group to one file, and return it."""
    files, above = open_filesystem(root)
    path = f"{group[0].folder}/part-{uuid4().hex}.parquet".lstrip("/")
    of_table = pa.schema(delta.schema().to_arrow())
    with _opened(files, f"{above}/{group[0].path}") as first:
        schema = _typed(first.schema_arrow, of_table)
    about: list[Any] = []
    with (
        files.open_output_stream(f"{above}/{path}") as stream,
        pq.ParquetWriter(stream, schema, compression="zstd", metadata_collector=about) as writer,
    ):
        for rows in _gathered(_batches(files, above, of_table, schema, group)):
            writer.write_table(rows)
    columns = delta.metadata().configuration.get(_STATISTICS, "").split(",")
    size = files.get_file_info(f"{above}/{path}").size
    now_ms = int(time.time() * 1000)
    return AddAction(
        path,
        size,
        group[0].values,
        now_ms,
        data_change=False,
        stats=file_statistics(about[0], columns),
    )


def _batches(
    files: Any, above: str, of_table: pa.Schema, schema: pa.Schema, group: Iterable[SmallFile]
) -> Iterator[pa.RecordBatch]:
    for file in group:
        with _opened(files, f"{above}/{file.path}") as opened:
            if _typed(opened.schema_arrow, of_table) != schema:
                expected = f"expected the columns of the partition's other files ({schema.names})"
                raise ConfigError(
                    f"{above}/{file.path}: {expected}; got {opened.schema_arrow.names}, or others'"
                    " types: nothing is merged"
                )
            for batch in opened.iter_batches(READ_ROWS):
                yield _cast(batch, schema, f"{above}/{file.path}")


def _cast(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    try:
        return batch.cast(schema)
    except pa.ArrowInvalid as error:
        expected = "expected instants of whole microseconds, as Delta keeps them"
        raise ConfigError(f"{path}: {expected}; got: {error}: nothing is merged") from error


def _typed(schema: pa.Schema, of_table: pa.Schema) -> pa.Schema:
    """Return a file's columns, those with instants as the table has them.

    Spark writes an instant as INT96, which has neither zone nor unit: it is UTC, and Delta keeps
    microseconds.
    """
    for place, field in enumerate(schema):
        if field.name in of_table.names and "timestamp" in str(field.type):
            kind = of_table.field(field.name).type
            schema = schema.set(place, field.with_type(kind))
    return schema


@contextmanager
def _opened(files: Any, path: str) -> Iterator[pq.ParquetFile]:
    """Open a file of the table; raises `JobFailed`, which names it, if it is missing or damaged."""
    with (
        naming_damage(path, "the table", "nothing is merged"),
        pq.ParquetFile(path, filesystem=files, coerce_int96_timestamp_unit="us") as opened,
    ):
        yield opened


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join the batches of small files: each table is a row group."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered.append(batch)
        if sum(each.num_rows for each in gathered) >= READ_ROWS:
            yield pa.Table.from_batches(gathered)
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered)


def _commit(delta: DeltaTable, group: Sequence[SmallFile], merged: AddAction) -> None:
    now_ms = int(time.time() * 1000)
    removed = [
        RemoveAction(file.path, False, now_ms, file.size_bytes, file.values) for file in group
    ]
    number = Transaction(_MERGE, delta.version())
    try:
        delta.create_write_transaction(
            [*removed, merged],
            "append",
            delta.schema(),
            delta.metadata().partition_columns,
            commit_properties=CommitProperties(app_transactions=[number]),
        )
    except CommitFailedError as error:
        raise JobFailed(
            f"{delta.table_uri}: expected to be the only run of the job tidy; got another one's"
            " commit meanwhile. No row is lost or twice: run it again"
        ) from error
