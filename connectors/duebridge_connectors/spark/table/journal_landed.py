"""The journal's table as version 0.2.0 left it, and how it becomes a Delta table.

    TABLE/_manifests/000000000042.json ─▶ its files, day by day ─▶ one commit ─▶ no manifest

    TABLE/day=…/route=…/part-….parquet   files of the newest manifest are its rows

One commit brings all rows, with the number of the last batch in them. A take-over that is killed
before has changed nothing that counts; after it, only the manifests are left to remove. The old
files stay, for whoever reads them, until the job tidy.
"""

from collections.abc import Iterable, Iterator
from datetime import date
from itertools import chain, groupby
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType

from duebridge.errors import ConfigError
from duebridge_connectors.spark.files.location import FileLocation
from duebridge_connectors.spark.filesystem import open_filesystem
from duebridge_connectors.spark.table.journal_files import ROWS_SCHEMA, JournalFile, write_files
from duebridge_connectors.spark.table.journal_table import LANDED, JournalTable

READ_ROWS = 64 * 1024


class LandedFile(msgspec.Struct, frozen=True):
    """A file that a manifest names; `path` is relative to the table."""

    path: str

    @property
    def day(self) -> date:
        """The day that its directory names."""
        return date.fromisoformat(self.path.partition("/")[0].removeprefix("day="))

    @property
    def route(self) -> str:
        """The route that its directory names, which the file itself lacks."""
        return unquote(self.path.split("/")[1].removeprefix("route="))


class Manifest(msgspec.Struct, frozen=True):
    """What version 0.2.0 wrote of a version; fields that nobody needs now are left out."""

    query: str = ""
    batch: int = -1
    complete_until_ms: int = 0
    files: tuple[LandedFile, ...] = ()


def take_over(table: JournalTable) -> None:
    """Make a Delta table of one that version 0.2.0 wrote; of any other nothing is changed."""
    files, path = open_filesystem(table.place)
    place = f"{path}/{LANDED}"
    listed = files.get_file_info(FileSelector(place, allow_not_found=True))
    names = sorted(each.base_name for each in listed if each.base_name.endswith(".json"))
    if names:
        with files.open_input_stream(f"{place}/{names[-1]}") as stream:
            _append(table, msgspec.json.decode(stream.read(), type=Manifest))
    if files.get_file_info(place).type is FileType.Directory:
        files.delete_dir(place)


def _append(table: JournalTable, landed: Manifest) -> None:
    """Append what a manifest has beyond the table: all of it, or nothing if it is there."""
    version = table.begun(landed.query)
    if version.batch(landed.query) < landed.batch:
        written = list(_rewritten(table.place, landed.files))
        version.commit(landed.query, landed.batch, written, landed.complete_until_ms)


def _rewritten(root: FileLocation | str, landed: Iterable[LandedFile]) -> Iterator[JournalFile]:
    """Write the rows again, a day after the other: no more than one file is open."""
    for day, group in groupby(sorted(landed, key=lambda file: file.path), lambda file: file.day):
        yield from write_files(root, day, chain.from_iterable(_rows(root, file) for file in group))


def _rows(root: FileLocation | str, file: LandedFile) -> Iterator[pa.RecordBatch]:
    files, path = open_filesystem(root)
    with files.open_input_file(f"{path}/{file.path}") as stream:
        try:
            opened = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
            for batch in opened.iter_batches(READ_ROWS):
                yield _with_route(batch, file.route)
        except pa.ArrowInvalid as error:
            what = "expected a Parquet file of the journal"
            raise ConfigError(f"{root}/{file.path}: {what}; got: {error}") from error


def _with_route(batch: pa.RecordBatch, route: str) -> pa.RecordBatch:
    columns: dict[str, Any] = {name: batch.column(name) for name in batch.schema.names}
    columns["route"] = pa.repeat(route, batch.num_rows)
    arrays = [_as(columns[field.name], field.type) for field in ROWS_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS_SCHEMA)


def _as(column: Any, kind: pa.DataType) -> Any:
    """Return a column in the table's type; an instant without a zone is UTC, as Spark writes it."""
    if pa.types.is_timestamp(kind) and column.type.tz is None:
        return column.cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    return column.cast(kind)
