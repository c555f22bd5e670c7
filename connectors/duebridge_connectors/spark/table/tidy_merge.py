"""Merges small files of a Delta table, so that no two runs merge the same ones.

`DeltaTable.optimize` does not look whether another run has replaced its files meanwhile: with
deltalake 1.6.6 two at once leave every row twice. A commit that sets a transaction of Delta fails
if another one has set it since the table was opened, so each merge sets `duebridge.tidy`. Appends
at the same time set others, and stand.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from duebridge.errors import JobFailed
from duebridge_connectors.spark.delta_table import file_statistics, written_table
from duebridge_connectors.spark.files.location import FileLocation
from duebridge_connectors.spark.filesystem import naming_damage, open_filesystem
from duebridge_connectors.spark.table.small_files import FILE_BYTES, SmallFile, small_files

READ_ROWS = 128 * 1024
_LAYOUT = re.compile(r"large_|_view\b|(?<=list<)\w+(?=: )")
_MERGE = "duebridge.tidy"
_STATISTICS = "delta.dataSkippingStatsColumns"


class Merges(NamedTuple):
    """How many files were merged, into how many; which were left because they fit no other."""

    merged: int
    into: int
    left: list[str]


class _OddFile(Exception):
    """A file whose values the table's types cannot hold; says why."""

    def __init__(self, file: SmallFile, why: object) -> None:
        super().__init__(f"{file.path}: expected values of the table's types; got: {why}")
        self.file = file


def merge_small_files(root: FileLocation | str) -> Merges:
    """Merge the small files of each partition that have the same columns; others are left.

    Raises `JobFailed` if another run of tidy merged meanwhile: then nothing of this partition is.
    """
    left: list[str] = []
    merged = [_merge(root, group, left) for group in _groups(root, left)]
    return Merges(sum(merged), sum(map(bool, merged)), left)


def _merge(root: FileLocation | str, group: list[SmallFile], left: list[str]) -> int:
    """Merge a group, but for files that prove odd; return how many files were merged."""
    while len(group) > 1:
        delta = written_table(root)
        if not {file.path for file in group} <= {file.path for file in small_files(delta)}:
            break
        try:
            _commit(delta, group, _merged(root, delta, group))
            return len(group)
        except _OddFile as odd:
            left.append(str(odd))
            group = [file for file in group if file is not odd.file]
    return 0


def _groups(root: FileLocation | str, left: list[str]) -> Iterator[list[SmallFile]]:
    """Yield files of one partition and the same columns that are a file of a good size together."""
    delta, by = written_table(root), attrgetter("partition")
    for _, partition in groupby(sorted(small_files(delta), key=by), by):
        for alike in _alike(root, delta, list(partition), left):
            yield from _sized(alike)


def _alike(
    root: FileLocation | str, delta: DeltaTable, partition: list[SmallFile], left: list[str]
) -> list[list[SmallFile]]:
    """Return the files of a partition by their columns; one that has no equal is left."""
    if len(partition) == 1:
        return []
    files, above = open_filesystem(root)
    found: dict[pa.Schema, list[SmallFile]] = {}
    for file in partition:
        with _opened(files, f"{above}/{file.path}") as opened:
            columns = _typed(opened.schema_arrow, _table_schema(delta)).remove_metadata()
        found.setdefault(columns, []).append(file)
    most = max(found, key=lambda columns: len(found[columns]))
    for columns, (file, *others) in found.items():
        if columns is not most and not others:
            left.append(f"{file.path}: {_difference(most, columns)}")
    return list(found.values())


def _difference(expected: pa.Schema, got: pa.Schema) -> str:
    what = "expected the columns of the partition's other files"
    lacks = [f"{field.name} {field.type}" for field in expected if field not in list(got)]
    has = [f"{field.name} {field.type}" for field in got if field not in list(expected)]
    return f"{what} ({', '.join(lacks) or 'no more'}); got {', '.join(has) or 'less'}"


def _sized(files: Iterable[SmallFile]) -> Iterator[list[SmallFile]]:
    group: list[SmallFile] = []
    for file in files:
        if sum(each.size_bytes for each in group) + file.size_bytes > FILE_BYTES:
            yield from [group] if len(group) > 1 else []
            group = []
        group.append(file)
    yield from [group] if len(group) > 1 else []


def _merged(root: FileLocation | str, delta: DeltaTable, group: Sequence[SmallFile]) -> AddAction:
    """Write the rows of a group to one file, and return it."""
    files, above = open_filesystem(root)
    path = f"{group[0].folder}/part-{uuid4().hex}.parquet".lstrip("/")
    with _opened(files, f"{above}/{group[0].path}") as first:
        schema = _typed(first.schema_arrow, _table_schema(delta))
    about: list[Any] = []
    with (
        files.open_output_stream(f"{above}/{path}") as stream,
        pq.ParquetWriter(stream, schema, compression="zstd", metadata_collector=about) as writer,
    ):
        for rows in _gathered(_batches(files, above, schema, group)):
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
    files: Any, above: str, schema: pa.Schema, group: Iterable[SmallFile]
) -> Iterator[pa.RecordBatch]:
    for file in group:
        with _opened(files, f"{above}/{file.path}") as opened:
            for batch in opened.iter_batches(READ_ROWS):
                try:
                    yield batch.cast(schema)
                except pa.ArrowInvalid as error:
                    raise _OddFile(file, error) from error


def _table_schema(delta: DeltaTable) -> pa.Schema:
    return pa.schema(delta.schema().to_arrow())


def _typed(schema: pa.Schema, of_table: pa.Schema) -> pa.Schema:
    """Return a file's columns, with the table's types where only the writer's layout differs.

    Spark writes an instant as INT96, which has neither zone nor unit: it is UTC, and Delta keeps
    microseconds. polars and DuckDB have types of their own for the same text, bytes and lists.
    """
    for place, field in enumerate(schema):
        if field.name in of_table.names:
            kind = of_table.field(field.name).type
            if "timestamp" in str(field.type) or _plain(field.type) == _plain(kind):
                schema = schema.set(place, field.with_type(kind))
    return schema


def _plain(kind: pa.DataType) -> str:
    """Return a type without what Arrow's layouts of it differ in."""
    return _LAYOUT.sub("", str(kind))


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
    number, before = Transaction(_MERGE, delta.version()), delta.transaction_version(_MERGE)
    try:
        delta.create_write_transaction(
            [*removed, merged],
            "append",
            delta.schema(),
            delta.metadata().partition_columns,
            commit_properties=CommitProperties(app_transactions=[number]),
        )
    except CommitFailedError as error:
        expected = "expected to commit the merged files"
        got = f"got: {error}"
        delta.update_incremental()
        if delta.transaction_version(_MERGE) != before:
            expected = "expected to be the only run of the job tidy"
            got = "got another one's commit meanwhile"
        why = f"{expected}; {got}. No row is lost or twice: run it again"
        raise JobFailed(f"{delta.table_uri}: {why}") from error
