"""Rejected rows as Parquet, unchanged, with the reason: repaired, they can be sent again.

Each attempt of a task writes its own file into a directory beside the finished ones. The job's
commit moves the files of the successful attempts into place.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType

from duebridge.errors import ConfigError
from duebridge_connectors.spark.files.location import FileLocation
from duebridge_connectors.spark.filesystem import open_filesystem

_ASIDE = "_attempts-"  # Spark ignores names that begin with _


class RejectsDirectory:
    """Finished files of rejects, beside a directory of unfinished attempts for each run."""

    def __init__(self, place: FileLocation | str, run: str) -> None:
        self._files, self._path = open_filesystem(place)
        self._run = run
        self._aside = f"{self._path}/{_ASIDE}{run}"

    def create(self, name: str) -> Any:
        """Open the file of an attempt for writing."""
        self._files.create_dir(self._aside, recursive=True)
        return self._files.open_output_stream(f"{self._aside}/{name}")

    def finish(self, names: Sequence[str], part: str = "") -> None:
        """Move these attempts into place; they replace earlier files of the same run and part."""
        stem = f"part-{self._run}-{part}"
        mine = re.compile(rf"{re.escape(stem)}\d{{5,}}\.parquet")  # a longer name is another run's
        self._files.create_dir(self._path, recursive=True)
        for info in self._files.get_file_info(FileSelector(self._path)):
            if info.type is FileType.File and mine.fullmatch(info.base_name):
                self._files.delete_file(info.path)
        for number, name in enumerate(names):
            self._files.move(f"{self._aside}/{name}", f"{self._path}/{stem}{number:05}.parquet")
        self.discard()

    def discard(self) -> None:
        """Remove the attempts of the run."""
        if self._files.get_file_info(self._aside).type is FileType.Directory:
            self._files.delete_dir(self._aside)


def check_rejects(place: FileLocation | str) -> None:
    """Raise `ConfigError` where no file can be written: the commit would, with the rows stored."""
    try:
        files, path = open_filesystem(place)
        attempt = f"{path}/{_ASIDE}{uuid4().hex}"
        files.create_dir(attempt, recursive=True)
        files.delete_dir(attempt)
    except (OSError, RuntimeError) as error:  # the latter is a refusal of HDFS
        what = "expected a directory that can be written"
        raise ConfigError(f"option rejects: {what}; got: {' '.join(str(error).split())}") from error


STATUS, REASON = "reject_status", "reject_reason"


class RejectWriter:
    """Writes the rejected rows of one attempt; without a directory it only counts them."""

    def __init__(self, directory: RejectsDirectory | None) -> None:
        self.count = 0
        self.first_reason = ""
        self._directory = directory
        self._name = f"{uuid4().hex}.parquet"
        self._stream: Any = None
        self._writer: Any = None

    def add(self, batch: pa.RecordBatch, refused: Mapping[int, tuple[str, str]]) -> None:
        """Write rejected rows of a batch: status and reason by the index of the row."""
        if not refused:
            return
        self.count += len(refused)
        indices = sorted(refused)
        self.first_reason = self.first_reason or refused[indices[0]][1]
        if self._directory is not None:
            why = [refused[index] for index in indices]
            self._write(self._directory, _with_reasons(batch, indices, why))

    def close(self) -> str | None:
        """Close the file and return its name; None if no row was rejected."""
        if self._writer is None:
            return None
        self._writer.close()
        self._stream.close()
        return self._name

    def _write(self, directory: RejectsDirectory, rows: Any) -> None:
        if self._writer is None:
            self._stream = directory.create(self._name)
            self._writer = pq.ParquetWriter(self._stream, rows.schema, compression="zstd")
        self._writer.write_table(rows)


def _with_reasons(batch: pa.RecordBatch, indices: list[int], why: list[tuple[str, str]]) -> Any:
    rows = _with_texts(pa.Table.from_batches([batch]).take(pa.array(indices)))
    rows = rows.append_column(STATUS, pa.array([status for status, _ in why], pa.string()))
    return rows.append_column(REASON, pa.array([reason for _, reason in why], pa.string()))


def _with_texts(rows: Any) -> Any:
    """Return the rows with durations as text (`90000ms`): Spark would read bare numbers."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_duration(field.type):
            whole = rows.column(place).cast(pa.duration("ms"), safe=False).cast(pa.int64())
            text = pc.binary_join_element_wise(whole.cast(pa.string()), "ms", "")
            rows = rows.set_column(place, field.name, text)
    return rows
