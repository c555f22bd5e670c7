"""Files that a job leaves: written aside, and moved into their place when the job is committed.

A place is a path or a URI that Arrow knows (file, s3, gs, hdfs); every process must see the same.
"""

from collections.abc import Sequence
from typing import Any

from pyarrow.fs import FileSelector, FileSystem, FileType

_ASIDE = "_attempts-"  # Spark reads nothing below a name that begins so


class Directory:
    """A directory of finished files, and one of attempts beside them for each run."""

    def __init__(self, place: str, run: str) -> None:
        self._files, self._path = opened(place)
        self._run = run
        self._aside = f"{self._path}/{_ASIDE}{run}"

    def begin(self, name: str) -> Any:
        """Return a stream to write an attempt's file to."""
        self._files.create_dir(self._aside, recursive=True)
        return self._files.open_output_stream(f"{self._aside}/{name}")

    def finish(self, names: Sequence[str], part: str = "") -> None:
        """Put these attempts in their place, instead of what the same run and part left before."""
        stem = f"part-{self._run}-{part}"
        self._files.create_dir(self._path, recursive=True)
        for each in self._files.get_file_info(FileSelector(self._path)):
            if each.type is FileType.File and each.base_name.startswith(stem):
                self._files.delete_file(each.path)
        for number, name in enumerate(names):
            self._files.move(f"{self._aside}/{name}", f"{self._path}/{stem}{number:05}.parquet")
        self.give_up()

    def give_up(self) -> None:
        """Remove the attempts of the run."""
        if self._files.get_file_info(self._aside).type is FileType.Directory:
            self._files.delete_dir(self._aside)


def write_file(place: str, data: bytes) -> None:
    """Write a whole file, or nothing."""
    files, path = opened(place)
    files.create_dir(path.rpartition("/")[0] or "/", recursive=True)
    with files.open_output_stream(f"{path}.new") as stream:
        stream.write(data)
    files.move(f"{path}.new", path)


def opened(place: str) -> tuple[Any, str]:
    """Return the file system of a place, and its path there."""
    files, path = FileSystem.from_uri(place)
    return files, path.rstrip("/")
