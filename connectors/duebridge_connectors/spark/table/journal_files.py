"""Parquet files of the journal's table, a file a day, written by tasks with Arrow.

Each attempt of a task writes files of its own directly into place, and a file counts once a commit
names it: no file is renamed, and those of failed attempts do no harm.
"""

import time
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from duebridge.admin.events import GAP
from duebridge_connectors.spark.delta_table import file_statistics
from duebridge_connectors.spark.files.location import FileLocation
from duebridge_connectors.spark.filesystem import open_filesystem
from duebridge_connectors.spark.rows.arrow import arrow_schema
from duebridge_connectors.spark.rows.schema import JOURNAL

GROUP_ROWS = 128 * 1024
FILE_ROWS = 4 * 1024 * 1024  # some 100 MB
ROWS_SCHEMA = arrow_schema(JOURNAL)  # of a file: the day is in its path
TABLE_SCHEMA = ROWS_SCHEMA.append(pa.field("day", pa.date32()))
WRITTEN = (
    "path string, day string, size_bytes long, at_ms long, rows long, gaps long, lost_entries long,"
    " statistics string"
)
BOUNDED = ("route", "at", "due_at", "sequence")  # columns by which a reader leaves out files
_AS: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["kind", "route", "shard", "sequence", "reason"],
    "write_statistics": list(BOUNDED),
}


class JournalFile(msgspec.Struct, frozen=True):
    """A file that a task has written; `path` is relative to the table."""

    path: str
    day: str
    size_bytes: int
    at_ms: int
    rows: int
    gaps: int
    lost_entries: int
    statistics: str


def write_days(
    root: FileLocation | str, found_on: date, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write rows to files by their UTC day, and yield what was written (`WRITTEN`).

    A gap has no time: its day is `found_on`.
    """
    for file in write_files(root, found_on, batches):
        yield pa.RecordBatch.from_pylist([msgspec.structs.asdict(file)])


def write_files(
    root: FileLocation | str, found_on: date, batches: Iterable[pa.RecordBatch]
) -> Iterator[JournalFile]:
    """Write rows to files by their UTC day, and yield each file once it is whole."""
    opened: dict[date, _DayFile] = {}
    for batch in batches:
        for day, rows in by_day(batch, found_on):
            if day not in opened:
                opened[day] = _DayFile(root, day)
            opened[day].add(rows)
            if opened[day].rows >= FILE_ROWS:
                yield opened.pop(day).closed()
    for file in opened.values():
        yield file.closed()


def by_day(batch: pa.RecordBatch, found_on: date) -> Iterator[tuple[date, pa.Table]]:
    """Yield the rows of each UTC day; those without a time are of `found_on`."""
    rows = pa.Table.from_batches([batch]).select(ROWS_SCHEMA.names).cast(ROWS_SCHEMA)
    days = pc.fill_null(rows["at"].cast(pa.date32()), pa.scalar(found_on))
    found = pc.unique(days)
    for day in found:
        yield day.as_py(), rows if len(found) == 1 else rows.filter(pc.equal(days, day))


class _DayFile:
    """A file that grows by row groups."""

    def __init__(self, root: FileLocation | str, day: date) -> None:
        self._files, above = open_filesystem(root)
        self._day = day.isoformat()
        self._path = f"day={self._day}/part-{uuid4().hex}.parquet"
        self._place = f"{above}/{self._path}"
        self._files.create_dir(f"{above}/day={self._day}", recursive=True)
        self._about: list[Any] = []
        self._stream = self._files.open_output_stream(self._place)
        self._writer = pq.ParquetWriter(
            self._stream, ROWS_SCHEMA, metadata_collector=self._about, **_AS
        )
        self._waiting: list[pa.Table] = []
        self.rows = self._gaps = self._lost = 0

    def add(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        self._gaps += pc.sum(pc.equal(rows["kind"], GAP)).as_py() or 0
        self._lost += pc.sum(rows["lost_entries"]).as_py() or 0
        self._waiting.append(rows)
        if sum(each.num_rows for each in self._waiting) >= GROUP_ROWS:
            self._write()

    def closed(self) -> JournalFile:
        """Finish the file, and return what it has."""
        self._write()
        self._writer.close()
        self._stream.close()
        (about,) = self._about
        return JournalFile(
            path=self._path,
            day=self._day,
            size_bytes=self._files.get_file_info(self._place).size,
            at_ms=int(time.time() * 1000),
            rows=self.rows,
            gaps=self._gaps,
            lost_entries=self._lost,
            statistics=file_statistics(about, BOUNDED),
        )

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting = []
