"""The journal as a table of Parquet files: what a reader sees is one whole version of it.

    TABLE/day=2026-11-21/route=reminders/part-….parquet   never changed once it is there
    TABLE/_manifests/000000000042.json                    the files that are version 42, all of them
    TABLE/_checkpoint                                     how far the journal is read

A manifest appears at once and whole, and nothing counts before it is in one. So a writer that is
killed at any point leaves the version before, and files that no version names: the next run removes
them. Files that a later version no longer names stay for a time, for who is still reading them.
There is one writer at a time: the query that owns the checkpoint.
"""

import time
from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType

from duebridge.errors import ConfigError

KEPT_MANIFESTS = 16  # for a reader that has seen a name and not opened it yet
CHECKPOINT = "_checkpoint"
_MANIFESTS = "_manifests"
_ASIDE = "_aside"  # Spark reads nothing below a name that begins with _


class DataFile(msgspec.Struct, frozen=True):
    """A file of a version; `path` is below the table."""

    path: str
    rows: int
    size_bytes: int

    @property
    def partition(self) -> str:
        """The day and route it belongs to, as its directory spells them."""
        return self.path.rpartition("/")[0]

    @property
    def day(self) -> str:
        """The day, as YYYY-MM-DD."""
        return self.path.partition("/")[0].removeprefix("day=")


class RetiredFile(msgspec.Struct, frozen=True):
    """A file of an earlier version, and since when it is none of the newest."""

    path: str
    at_ms: int


class Manifest(msgspec.Struct, frozen=True):
    """One version: its files, and the last batch of the query that is in it.

    All that was journalled by `complete_until_ms` is in it, by the store's clock; 0: not known.
    """

    version: int = 0
    query: str = ""
    batch: int = -1
    complete_until_ms: int = 0
    files: tuple[DataFile, ...] = ()
    retired: tuple[RetiredFile, ...] = ()

    def with_batch(self, query: str, batch: int, files: Iterable[DataFile]) -> "Manifest":
        """Return the version after this one, with a batch added."""
        return msgspec.structs.replace(
            self, version=self.version + 1, query=query, batch=batch, files=(*self.files, *files)
        )

    def with_merged(
        self, old: Iterable[DataFile], new: Iterable[DataFile], at_ms: int
    ) -> "Manifest":
        """Return the version after this one, with new files in the place of old ones."""
        gone = {each.path for each in old}
        return msgspec.structs.replace(
            self,
            version=self.version + 1,
            files=(*(each for each in self.files if each.path not in gone), *new),
            retired=(*self.retired, *(RetiredFile(path, at_ms) for path in sorted(gone))),
        )


class JournalTable:
    """A table at a path or URI that Spark and Arrow both know by this name."""

    def __init__(self, place: str) -> None:
        self.place = place.rstrip("/")
        self._files, path = FileSystem.from_uri(place)
        self._path = path.rstrip("/")

    @property
    def checkpoint(self) -> str:
        """Where the query keeps how far it is."""
        return f"{self.place}/{CHECKPOINT}"

    @property
    def aside(self) -> str:
        """Where a batch is written before it is taken over."""
        return f"{self.place}/{_ASIDE}"

    def newest(self) -> Manifest:
        """Return the newest version; an empty one where there is none yet."""
        names = sorted(self._names(_MANIFESTS, ".json"))
        if not names:
            return Manifest()
        return msgspec.json.decode(self._read(f"{_MANIFESTS}/{names[-1]}"), type=Manifest)

    def existing(self) -> Manifest:
        """Return the newest version; raises `ConfigError` where nothing was ever written."""
        found = self.newest()
        if not found.version:
            raise ConfigError(
                f"{self.place}: expected a table that the job journal wrote; got none"
            )
        return found

    def paths(self, files: Iterable[DataFile]) -> list[str]:
        """Return the files' full paths, for Spark."""
        return [f"{self.place}/{each.path}" for each in files]

    def query(self) -> str:
        """Return the name of the query whose checkpoint is here."""
        return str(msgspec.json.decode(self._read(f"{CHECKPOINT}/metadata"))["id"])

    def reached(self, batch: int) -> dict[str, int]:
        """Return up to which entry a batch of the query reads each shard's journal."""
        offset = self._read(f"{CHECKPOINT}/offsets/{batch}").splitlines()[-1]
        found = msgspec.json.decode(offset, type=dict[str, tuple[int, int]])
        return {name: until for name, (_, until) in found.items()}

    def take_over(self) -> list[DataFile]:
        """Move what was written aside among the files; no version names them yet."""
        taken = []
        for each in self._parquet(_ASIDE):
            path = each.path.removeprefix(f"{self._path}/{_ASIDE}/")
            rows = pq.read_metadata(each.path, filesystem=self._files).num_rows
            self._files.create_dir(f"{self._path}/{path.rpartition('/')[0]}", recursive=True)
            self._files.move(each.path, f"{self._path}/{path}")
            taken.append(DataFile(path, rows, each.size))
        return taken

    def commit(self, manifest: Manifest) -> Manifest:
        """Make this the newest version, at once and whole."""
        name = f"{self._path}/{_MANIFESTS}/{manifest.version:012}.json"
        self._files.create_dir(f"{self._path}/{_MANIFESTS}", recursive=True)
        with self._files.open_output_stream(f"{name}.new") as stream:
            stream.write(msgspec.json.encode(manifest))
        self._files.move(f"{name}.new", name)
        for old in sorted(self._names(_MANIFESTS, ".json"))[:-KEPT_MANIFESTS]:
            self._files.delete_file(f"{self._path}/{_MANIFESTS}/{old}")
        return manifest

    def complete(self, until_ms: int) -> None:
        """Write down that all that was journalled by an instant is in the newest version."""
        newest = self.newest()
        version = newest.version + 1
        self.commit(msgspec.structs.replace(newest, version=version, complete_until_ms=until_ms))

    def sweep(self, keep_ms: int) -> None:
        """Remove what a killed run left, and what was retired longer ago than `keep_ms`."""
        newest = self.newest()
        since_ms = int(time.time() * 1000) - keep_ms
        kept = [each for each in newest.retired if each.at_ms > since_ms]
        if len(kept) < len(newest.retired):
            version = newest.version + 1
            newest = msgspec.structs.replace(newest, version=version, retired=tuple(kept))
            self.commit(newest)
        known = {each.path for each in newest.files} | {each.path for each in kept}
        for each in self._parquet(""):
            path = each.path.removeprefix(f"{self._path}/")
            if path.startswith("day=") and path not in known:
                self._files.delete_file(each.path)

    def _names(self, below: str, end: str) -> list[str]:
        selector = FileSelector(f"{self._path}/{below}", allow_not_found=True)
        found = self._files.get_file_info(selector)
        return [each.base_name for each in found if each.base_name.endswith(end)]

    def _parquet(self, below: str) -> list[Any]:
        root = f"{self._path}/{below}".rstrip("/")
        selector = FileSelector(root, recursive=True, allow_not_found=True)
        return [
            each
            for each in self._files.get_file_info(selector)
            if each.type is FileType.File and each.base_name.endswith(".parquet")
        ]

    def _read(self, path: str) -> bytes:
        with self._files.open_input_stream(f"{self._path}/{path}") as stream:
            return bytes(stream.read())
