"""The job `tidy`: merges the small files of a Delta table, and removes what nobody reads any more.

    small files of a day ─▶ one file ─▶ commit      (readers of the older version go on)
    files that no version has named for `keep` ─▶ removed

It runs beside the jobs that append to the table, by `deltalake`, without Spark. A merge changes no
row, so an append at the same time stands; a run that is killed leaves at most files for the next.
"""

import math
from datetime import UTC, datetime, timedelta

import msgspec
from pyarrow.fs import FileSelector, FileType

from duebridge.config.file_locations import FILE, HDFS
from duebridge.durations import parse_duration_ms
from duebridge.errors import ConfigError
from duebridge_connectors.spark.delta_table import written_table
from duebridge_connectors.spark.files.location import FileLocation, Stores, location_of
from duebridge_connectors.spark.filesystem import open_filesystem, remove_empty_folder
from duebridge_connectors.spark.table.tidy_merge import merge_small_files

KEEP = "1d"
LEAST_KEEP_MS = 3_600_000  # what a job writes now is in no version yet
_HAVE_FOLDERS = (FILE, HDFS)


class TidySummary(msgspec.Struct, frozen=True):
    """What a run merged and removed, and what the table has; `left`: odd files, and why."""

    table: str
    merged_files: int
    into_files: int
    removed_files: int
    table_files: int
    left: list[str]

    def __str__(self) -> str:
        left = "".join(f"\nleft as it is: {file}" for file in self.left)
        return (
            f"{self.table}: {self.merged_files:,} files merged into {self.into_files:,},"
            f" {self.removed_files:,} old ones removed; the table has {self.table_files:,}{left}"
        )


def run_tidy(table: str, keep: str = KEEP, *, config: str | None = None) -> TidySummary:
    """Merge the small files of a Delta table, and remove those unnamed for `keep`.

    No reader that began less than `keep` ago is disturbed, and no row changes. Files that fit no
    other of their partition are left and named. `config` names a
    configuration with the options of the table's bucket. Raises `ConfigError` if there is no Delta
    table, or if `keep` is below an hour.
    """
    keep_ms = parse_duration_ms(keep, "keep")
    if keep_ms < LEAST_KEEP_MS:
        why = "files that a job writes now are in no version yet"
        raise ConfigError(f"keep: expected at least 1h; got {keep}: {why}")
    return tidy(Stores.of_file(config).place(table), keep_ms)


def tidy(table: FileLocation | str, keep_ms: int) -> TidySummary:
    """Do what `run_tidy` does, for any time."""
    merges = merge_small_files(table)
    delta = written_table(table)
    removed = delta.vacuum(
        retention_hours=math.ceil(keep_ms / 3_600_000),
        dry_run=False,
        enforce_retention_duration=False,  # of the table's own time, which is that of other tools
        full=True,
    )
    delta.create_checkpoint()
    delta.cleanup_metadata()
    _remove_empty_folders(table, datetime.now(UTC) - timedelta(milliseconds=keep_ms))
    files = len(delta.file_uris())
    return TidySummary(
        table=str(table),
        merged_files=merges.merged,
        into_files=merges.into,
        removed_files=len(removed),
        table_files=files,
        left=merges.left,
    )


def _remove_empty_folders(table: FileLocation | str, before: datetime) -> None:
    """Remove the folders whose files are gone; a younger one may be about to get its first.

    A job that writes into one meanwhile keeps it: only an empty folder is removed.
    """
    if location_of(table).address.kind not in _HAVE_FOLDERS:
        return
    files, path = open_filesystem(table)
    found = files.get_file_info(FileSelector(path, recursive=True))
    empty = {info.path: info for info in found if info.type is FileType.Directory}
    for info in sorted(found, key=lambda each: each.path, reverse=True):
        of_table = info.path.removeprefix(f"{path}/")
        if info.path in empty and not of_table.startswith("_") and info.mtime < before:
            remove_empty_folder(table, info.path)
        else:
            empty.pop(info.path.rpartition("/")[0], None)
