"""The journal as a table of Parquet files; a reader sees one complete version.

    TABLE/day=2026-11-21/route=reminders/part-….parquet   never changed once written
    TABLE/_manifests/000000000042.json                    all files of version 42
    TABLE/_checkpoint                                     how far the journal is read

Manifests appear atomically, and only files of a manifest count. A writer killed at any point leaves
the previous version, and unnamed files that the next run removes. Files replaced by a later version
stay for a time, for readers of the older one. Only the query that owns the checkpoint writes.
"""

import time
from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType

from duebridge.errors import ConfigError
from duebridge_connectors.spark.filesystem import open_filesystem, write_file

KEPT_MANIFESTS = 16  # for readers that have listed a name and not opened it yet
CHECKPOINT = "_checkpoint"
_MANIFESTS = "_manifests"
_ASIDE = "_aside"  # Spark ignores names that begin with _


class DataFile(msgspec.Struct, frozen=True):
    """A file of a version; `path` is relative to the table."""

    path: str
    rows: int
    size_bytes: int

    @property
    def partition(self) -> str:
        """The directory of its day and route."""
        return self.path.rpartition("/")[0]

    @property
    def day(self) -> str:
        """The day, as YYYY-MM-DD."""
        return self.path.partition("/")[0].removeprefix("day=")


class RetiredFile(msgspec.Struct, frozen=True):
    """A file of an earlier version, and when it was replaced."""

    path: str
    at_ms: int


class Manifest(msgspec.Struct, frozen=True):
    """One version: its files, and the last batch of the query that it contains.

    It has every entry journalled before `complete_until_ms` of the store's clock; 0: unknown.
    """

    version: int = 0
    query: str = ""
    batch: int = -1
    complete_until_ms: int = 0
    files: tuple[DataFile, ...] = ()
    retired: tuple[RetiredFile, ...] = ()

    def with_batch(self, query: str, batch: int, files: Iterable[DataFile]) -> "Manifest":
        """Return the next version, with a batch added."""
        return msgspec.structs.replace(
            self, version=self.version + 1, query=query, batch=batch, files=(*self.files, *files)
        )

    def with_merged(
        self, old: Iterable[DataFile], new: Iterable[DataFile], at_ms: int
    ) -> "Manifest":
        """Return the next version, with new files in place of old ones."""
        gone = {file.path for file in old}
        return msgspec.structs.replace(
            self,
            version=self.version + 1,
            files=(*(file for file in self.files if file.path not in gone), *new),
            retired=(*self.retired, *(RetiredFile(path, at_ms) for path in sorted(gone))),
        )


class JournalTable:
    """A table at a path or URI that both Spark and Arrow can open."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self._files, self._path = open_filesystem(root)

    @property
    def checkpoint(self) -> str:
        """The checkpoint directory of the query."""
        return f"{self.root}/{CHECKPOINT}"

    @property
    def aside(self) -> str:
        """The directory that Spark writes a batch to, before `take_over`."""
        return f"{self.root}/{_ASIDE}"

    def newest(self) -> Manifest:
        """Return the newest version; an empty one if there is none."""
        names = sorted(self._names(_MANIFESTS, ".json"))
        if not names:
            return Manifest()
        return msgspec.json.decode(self._read(f"{_MANIFESTS}/{names[-1]}"), type=Manifest)

    def existing(self) -> Manifest:
        """Return the newest version; raises `ConfigError` if there is none."""
        found = self.newest()
        if not found.version:
            raise ConfigError(f"{self.root}: expected a table that the job journal wrote; got none")
        return found

    def paths(self, files: Iterable[DataFile]) -> list[str]:
        """Return the full paths of files, for Spark."""
        return [f"{self.root}/{file.path}" for file in files]

    def query(self) -> str:
        """Return the id of the query that owns the checkpoint."""
        return str(msgspec.json.decode(self._read(f"{CHECKPOINT}/metadata"))["id"])

    def reached(self, batch: int) -> dict[str, int]:
        """Return the last entry that a batch of the query reads, for each shard."""
        offset = self._read(f"{CHECKPOINT}/offsets/{batch}").splitlines()[-1]
        found = msgspec.json.decode(offset, type=dict[str, list[int]])
        return {name: until for name, (_, until, *_) in found.items()}

    def take_over(self) -> list[DataFile]:
        """Move the files written aside into the table; no version names them yet."""
        taken = []
        for info in self._parquet(_ASIDE):
            path = info.path.removeprefix(f"{self._path}/{_ASIDE}/")
            rows = pq.read_metadata(info.path, filesystem=self._files).num_rows
            self._files.create_dir(f"{self._path}/{path.rpartition('/')[0]}", recursive=True)
            self._files.move(info.path, f"{self._path}/{path}")
            taken.append(DataFile(path, rows, info.size))
        return taken

    def commit(self, manifest: Manifest) -> Manifest:
        """Make this the newest version, atomically."""
        name = f"{self.root}/{_MANIFESTS}/{manifest.version:012}.json"
        write_file(name, msgspec.json.encode(manifest))
        for old in sorted(self._names(_MANIFESTS, ".json"))[:-KEPT_MANIFESTS]:
            self._files.delete_file(f"{self._path}/{_MANIFESTS}/{old}")
        return manifest

    def complete(self, until_ms: int) -> None:
        """Record that the newest version has every entry journalled before an instant."""
        newest = self.newest()
        version = newest.version + 1
        self.commit(msgspec.structs.replace(newest, version=version, complete_until_ms=until_ms))

    def sweep(self, keep_ms: int) -> None:
        """Remove files that a killed run left, and those replaced more than `keep_ms` ago."""
        newest = self.newest()
        since_ms = int(time.time() * 1000) - keep_ms
        kept = [file for file in newest.retired if file.at_ms > since_ms]
        if len(kept) < len(newest.retired):
            version = newest.version + 1
            newest = msgspec.structs.replace(newest, version=version, retired=tuple(kept))
            self.commit(newest)
        known = {file.path for file in newest.files} | {file.path for file in kept}
        for info in self._parquet(""):
            path = info.path.removeprefix(f"{self._path}/")
            if path.startswith("day=") and path not in known:
                self._files.delete_file(info.path)

    def _names(self, below: str, end: str) -> list[str]:
        selector = FileSelector(f"{self._path}/{below}", allow_not_found=True)
        found = self._files.get_file_info(selector)
        return [info.base_name for info in found if info.base_name.endswith(end)]

    def _parquet(self, below: str) -> list[Any]:
        root = f"{self._path}/{below}".rstrip("/")
        selector = FileSelector(root, recursive=True, allow_not_found=True)
        return [
            info
            for info in self._files.get_file_info(selector)
            if info.type is FileType.File and info.base_name.endswith(".parquet")
        ]

    def _read(self, path: str) -> bytes:
        with self._files.open_input_stream(f"{self._path}/{path}") as stream:
            return bytes(stream.read())
