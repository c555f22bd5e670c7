"""Deletes what no reader of a cold tier needs any more; harmless at any time, killed anywhere.

docs/spark/demote.md says what goes, and when. That nothing names a killed job's files is an entry
of the log first: a job that names them later fails.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any
from uuid import uuid4

import msgspec
from pyarrow.fs import FileSelector, FileType

from duebridge.config.file_locations import FILE, HDFS
from duebridge.durations import format_ms
from duebridge.errors import JobFailed
from duebridge_connectors.spark.cold.commit_log import (
    STATE_EVERY,
    SWEPT,
    ColdLog,
    Commit,
    entry_name,
)
from duebridge_connectors.spark.cold.parquet.id_filter import SUFFIX
from duebridge_connectors.spark.cold.parquet.slices import read_slice
from duebridge_connectors.spark.cold.tier_state import TierState
from duebridge_connectors.spark.filesystem import open_filesystem

DAY_MS = 24 * 3_600_000
LEFT_MS = DAY_MS
SPENT_MS = 7 * DAY_MS
_FOLDER = re.compile(r"(batch=|pulled=|_rejects/)[^/]+")


class SweepSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a sweep deleted: spent ones, leftovers of killed jobs, entries of the log."""

    spent: int = 0
    left: int = 0
    entries: int = 0


def sweep(log: ColdLog, now_ms: int, most: int | None = None) -> SweepSummary:
    """Delete files; up to `most` of each kind, None for all. Raises `OSError` and `JobFailed`."""
    spent = _sweep_spent(log, now_ms, most)
    left = _sweep_left(log, now_ms, most)
    entries = _delete(log, islice(_old_entries(log, now_ms), most))
    return SweepSummary(spent=spent, left=left, entries=entries)


def _sweep_spent(log: ColdLog, now_ms: int, most: int | None) -> int:
    state, earlier = log.state(), log.taken_over()
    old = [file for file, since in state.spent.items() if since <= now_ms - SPENT_MS]
    spent = [*islice([*earlier, *old], most)]
    if not spent and not state.earlier:
        return 0
    found = _delete(log, [*spent, *(file + SUFFIX for file in spent)])
    log.commit(Commit(kind=SWEPT, batch=uuid4().hex[:8], at_ms=now_ms, swept=tuple(spent)))
    return found


def _sweep_left(log: ColdLog, now_ms: int, most: int | None) -> int:
    """Delete files that no commit names.

    Whoever stood still since it wrote them, and would name them now, finds the number of its entry
    taken, and is checked again.
    """
    if not (left := [*islice(_left(log, now_ms), most)]):
        return 0
    log.commit(Commit(kind=SWEPT, batch=uuid4().hex[:8], at_ms=now_ms))
    named = _named(log.state())
    return _delete(log, (file for file in left if file not in named))


def check_recent(log: ColdLog, batch: Commit, now_ms: int) -> None:
    """Raise `JobFailed` if the files of a batch, not committed yet, may soon be swept, or were."""
    age_ms, missing = now_ms - batch.at_ms, {*batch.files} - {*log.written(f"batch={batch.batch}")}
    if missing or age_ms >= LEFT_MS // 2:
        raise JobFailed(
            f"batch {batch.batch} of {log.root}: expected to be committed within"
            f" {format_ms(LEFT_MS // 2)}, with all its files; got {format_ms(age_ms)}, and"
            f" {len(missing)} files missing: this job stood still. Nothing is moved: run it again"
        )


def _left(log: ColdLog, now_ms: int) -> Iterator[str]:
    """Yield files that no commit names, of folders in which nothing was written of late.

    They are listed before the state is read: what is committed meanwhile is named.
    """
    found = [*_files(log)]
    named = _named(log.state())
    for folder, files in groupby(found, key=lambda file: _folder(file[0])):
        unnamed = [(path, at) for path, at in files if path not in named]
        if folder and max((at for _, at in unnamed), default=now_ms) <= now_ms - LEFT_MS:
            yield from (path for path, _ in unnamed)


def _named(state: TierState) -> set[str]:
    rows = {read_slice(name).file for name in state.known} | {*state.spent}
    return {*rows, *(file + SUFFIX for file in rows), *state.pulled}


def _files(log: ColdLog) -> list[tuple[str, int]]:
    """Return all files below the root, sorted, with when they were written."""
    files, root = open_filesystem(log.root)
    found = files.get_file_info(FileSelector(root, recursive=True, allow_not_found=True))
    return sorted(
        (info.path[len(root) + 1 :], info.mtime_ns // 1_000_000)
        for info in found
        if info.type == FileType.File
    )


def _folder(path: str) -> str:
    """Return the folder of a job's files, such as batch=B; '' for any other file."""
    found = _FOLDER.match(path)
    return found.group() if found else ""


def _old_entries(log: ColdLog, now_ms: int) -> Iterator[str]:
    """Yield the entries before the last old one that has the state, oldest first, and drafts."""
    numbers = log.numbers()
    for number in reversed([each for each in numbers if each % STATE_EVERY == 0]):
        entry = log.entry(number)
        if entry.state is not None and entry.commit.at_ms <= now_ms - SPENT_MS:
            yield from (entry_name(each) for each in numbers if each < number)
            break
    yield from (
        path
        for path, at in _files(log)
        if path.startswith("_commits/") and ".json." in path and at <= now_ms - LEFT_MS
    )


def _delete(log: ColdLog, names: Iterable[str]) -> int:
    """Delete files of the tier, and folders that are empty then; return how many were there."""
    files, root = open_filesystem(log.root)
    found = 0
    for name in names:
        try:
            files.delete_file(f"{root}/{name}")
        except FileNotFoundError:
            continue
        found += 1
        if log.root.address.kind in (FILE, HDFS):  # object stores have no folders
            _delete_empty(files, root, name.rpartition("/")[0])
    return found


def _delete_empty(files: Any, root: str, folder: str) -> None:
    while _folder(folder) and not files.get_file_info(FileSelector(f"{root}/{folder}")):
        files.delete_dir(f"{root}/{folder}")
        folder = folder.rpartition("/")[0]
