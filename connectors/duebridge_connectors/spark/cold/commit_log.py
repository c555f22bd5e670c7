"""The log of a cold tier: small immutable files that say which data files count.

    PATH/route=R/batch=B/due_date=2027-01-05/due_hour=13/part-….parquet     rows
    PATH/route=R/_commits/B-demoted.json                                    what happened

A file without a commit does not count: its writer was killed before verification. This module
needs Arrow, not Spark.
"""

from datetime import datetime
from typing import NamedTuple

import msgspec
from pyarrow.fs import FileSelector

from duebridge.config.models import HOUR_MS
from duebridge_connectors.spark.filesystem import open_filesystem, write_file

DEMOTED, REMOVED, SCHEDULED, HYDRATED = "demoted", "removed", "scheduled", "hydrated"


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of the tier; paths are relative to its root.

    `files` are new. `taken` are completely in the store now; `pulled` are lists of single rows that
    are, of files that still wait. `removed` and `void` count the copies of a batch by outcome.
    """

    kind: str
    batch: str
    at_ms: int
    rows: int = 0
    files: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    pulled: tuple[str, ...] = ()
    removed: int = 0
    void: int = 0


class TierState(NamedTuple):
    """The files whose rows are cold, and `pulled`, the lists of their rows that no longer are.

    `unfinished` batches do not count yet: the store may still have their envelopes.
    """

    files: list[str]
    pulled: list[str]
    unfinished: list[Commit]

    @property
    def known(self) -> list[str]:
        """All files whose rows are cold, or will be once the store has removed them."""
        return [*self.files, *(file for batch in self.unfinished for file in batch.files)]

    def due_before(self, until_ms: int) -> list[str]:
        """Return the files of hours that begin before an instant."""
        return [file for file in self.files if hour_of(file) < until_ms]


class ColdLog:
    """Reads and writes the log of a route. Raises `OSError`."""

    def __init__(self, path: str, route: str) -> None:
        self.root = f"{path.rstrip('/')}/route={route}"

    def commit(self, entry: Commit) -> None:
        """Append to the log, atomically and idempotently."""
        path = f"{self.root}/_commits/{entry.batch}-{entry.kind}.json"
        write_file(path, msgspec.json.encode(entry))

    def commits(self) -> list[Commit]:
        """Return all commits, in order of time."""
        files, path = open_filesystem(f"{self.root}/_commits")
        found = files.get_file_info(FileSelector(path, allow_not_found=True))
        commits = []
        for info in found:
            if info.path.endswith(".json"):
                with files.open_input_file(info.path) as file:
                    commits.append(msgspec.json.decode(file.read(), type=Commit))
        return sorted(commits, key=lambda commit: (commit.at_ms, commit.batch))

    def state(self) -> TierState:
        """Return the present state of the tier."""
        log = self.commits()
        finished = {commit.batch for commit in log if commit.kind == REMOVED}
        taken = {file for commit in log for file in commit.taken}
        unfinished = [
            commit for commit in log if commit.kind == DEMOTED and commit.batch not in finished
        ]
        counted = [file for commit in log if commit not in unfinished for file in commit.files]
        pulled = [file for commit in log for file in commit.pulled]
        return TierState([file for file in counted if file not in taken], pulled, unfinished)

    def written(self, folder: str) -> list[str]:
        """Return the Parquet files below a folder of the root, committed or not."""
        files, path = open_filesystem(self.root)
        selector = FileSelector(f"{path}/{folder}", recursive=True, allow_not_found=True)
        found = (info.path for info in files.get_file_info(selector))
        return sorted(name[len(path) + 1 :] for name in found if name.endswith(".parquet"))


def hour_of(file: str) -> int:
    """Return the begin of the hour of a file, epoch ms."""
    parts = dict(part.split("=", 1) for part in file.split("/") if "=" in part)
    day = datetime.fromisoformat(f"{parts['due_date']}T00:00:00+00:00")
    return int(day.timestamp()) * 1000 + int(parts["due_hour"]) * HOUR_MS


def boundary_ms(now_ms: int, horizon_ms: int) -> int:
    """Return the end of the horizon, rounded up to whole hours."""
    return -(-(now_ms + horizon_ms) // HOUR_MS) * HOUR_MS
