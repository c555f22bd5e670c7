"""The log of a cold tier: numbered entries that say which data files count.

    PATH/route=R/batch=B/due=…/….parquet                        rows
    PATH/route=R/_commits/00000000000000000042.json             entry 42: a commit
    PATH/route=R/_commits/00000000000000000064.json             a commit, and the state after it

An entry is created, never written over: of two writers of a number one goes on with the next. A
reader takes the last entry that has a state and those after it, however long the log is. A file
without a commit does not count: its writer was killed before verification.

Versions up to 0.2 had a file a commit, `_commits/B-demoted.json`. They count as they are, and the
first entry that is written takes them over. This module needs Arrow, not Spark.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import msgspec
from pyarrow.fs import FileSelector, FileType

from duebridge.errors import JobFailed
from duebridge_connectors.spark.cold.parquet.slices import up_to_hour
from duebridge_connectors.spark.cold.tier_state import (
    COMPACTED,
    DEMOTED,
    HYDRATED,
    REMOVED,
    SCHEDULED,
    SIFTED,
    SWEPT,
    Commit,
    TierState,
    advanced,
)
from duebridge_connectors.spark.files.location import FileLocation, location_of
from duebridge_connectors.spark.filesystem import create_file, open_filesystem

__all__ = [
    "COMPACTED",
    "DEMOTED",
    "HYDRATED",
    "REMOVED",
    "SCHEDULED",
    "SIFTED",
    "SWEPT",
    "ColdLog",
    "Commit",
    "LogEntry",
    "TierState",
    "boundary_ms",
]

_T = TypeVar("_T")
STATE_EVERY = 32  # entries: what a reader reads at most
TRIES = 100  # to get a number, or a view of the log that nobody sweeps meanwhile


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the log; some have the state after it."""

    commit: Commit
    state: TierState | None = None


class _LogEnd(NamedTuple):
    """The end of the log: its last number, the state then, and whether an entry has to say it."""

    number: int
    state: TierState
    is_earlier: bool  # commits of an earlier version are to be taken over


class ColdLog:
    """Reads and writes the log of a route. Raises `OSError`, and `JobFailed` for a damaged one."""

    def __init__(self, path: FileLocation | str, route: str) -> None:
        self.root = location_of(path) / f"route={route}"

    def commit(self, entry: Commit, check: Callable[[], None] = lambda: None) -> bool:
        """Append to the log, atomically; return whether the commit counts.

        It does not where another job was first: a batch is finished already, or a merge read files
        that have changed. What `check` raises, it raises, such as for a lost lease: the job that
        has the lease since then has the next number, however long this one stood still.
        """
        for _ in range(TRIES):
            end = self._end()
            if not end.state.accepts(entry):
                return False
            check()  # after the end was read
            if self._append(end, entry):
                return True
        raise OSError(f"{self.root}: expected to get a number in {TRIES} tries; others had them")

    def _append(self, end: _LogEnd, commit: Commit) -> bool:
        """Create the next entry; return whether this writer did."""
        number = end.number + 1
        has_state = end.is_earlier or number % STATE_EVERY == 0
        state = advanced(end.state, [commit]) if has_state else None
        data = msgspec.json.encode(LogEntry(commit, state))
        if not create_file(self.root / entry_name(number), data):
            return self.entry(number) == LogEntry(commit, state)  # a reply was lost
        if end.number and end.number not in self.numbers():
            text = f"{self.root}: expected entry {end.number} of the log; it was swept meanwhile"
            raise JobFailed(f"{text}: this job stood still for days; run it again")
        return True

    def commits(self) -> list[Commit]:
        """Return the commits that the log still has, oldest first."""
        names = self._names()
        earlier = [commit for name in names if not _number(name) for commit in self._earlier(name)]
        numbered = [self.entry(number).commit for number in sorted(map(_number, names)) if number]
        return [*sorted(earlier, key=lambda commit: (commit.at_ms, commit.batch)), *numbered]

    def state(self) -> TierState:
        """Return the present state of the tier."""
        return self._end().state

    def taken_over(self) -> list[str]:
        """Return the commits of an earlier version that an entry includes, and nobody has swept."""
        numbers = self.numbers()
        recorded, _ = self._since_state(numbers[-1] if numbers else 0)
        return [*({*recorded.earlier} & {*self.state().earlier})]

    def _end(self) -> _LogEnd:
        for _ in range(TRIES):
            names = self._names()
            try:
                return self._read(names)
            except FileNotFoundError as error:  # a list made while others write may lack some
                missing = error
        text = f"{self.root}: expected all entries of the log since its last state; got: {missing}"
        raise JobFailed(f"{text}; nothing is lost: restore the folder _commits")

    def _read(self, names: list[str]) -> _LogEnd:
        numbers = sorted(filter(None, map(_number, names)))
        state, after = self._since_state(numbers[-1] if numbers else 0)
        known = {*state.earlier}
        new = [name for name in names if not _number(name) and name not in known]
        earlier = [commit for name in new for commit in self._earlier(name)]
        order = sorted(earlier, key=lambda commit: (commit.at_ms, commit.batch))
        reached = advanced(state, [*order, *reversed(after)], new)
        return _LogEnd(numbers[-1] if numbers else 0, reached, bool(new))

    def _since_state(self, number: int) -> tuple[TierState, list[Commit]]:
        """Return the last state up to an entry, and the commits after it, the newest first."""
        after: list[Commit] = []
        while number:
            entry = self.entry(number)
            if entry.state is not None:
                return entry.state, after
            after.append(entry.commit)
            number -= 1
        return TierState(), after

    def entry(self, number: int) -> LogEntry:
        """Return an entry."""
        return self._decoded(entry_name(number), LogEntry)

    def _earlier(self, name: str) -> Iterable[Commit]:
        """Yield the commit of an earlier version; none if it was swept, as the log includes it."""
        try:
            yield self._decoded(name, Commit)
        except FileNotFoundError:
            return

    def _decoded(self, name: str, kind: type[_T]) -> _T:
        files, root = open_filesystem(self.root)
        with files.open_input_file(f"{root}/{name}") as file:
            data = file.read()
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            what = f"{root}/{name}: expected a commit of the cold tier; got: {error}"
            raise JobFailed(f"{what}; nothing is lost: restore the file") from error

    def numbers(self) -> list[int]:
        """Return the numbers of the entries that the log still has."""
        return sorted(filter(None, map(_number, self._names())))

    def _names(self) -> list[str]:
        files, root = open_filesystem(self.root)
        selector = FileSelector(f"{root}/_commits", allow_not_found=True)
        try:
            found = files.get_file_info(selector)
        except FileNotFoundError:  # another writer made the folder while Arrow looked
            found = files.get_file_info(selector)
        names = (info.path[len(root) + 1 :] for info in found)
        return sorted(name for name in names if name.endswith(".json"))

    def written(self, folder: str) -> list[str]:
        """Return the Parquet files below a folder of the root, committed or not."""
        files, path = open_filesystem(self.root)
        selector = FileSelector(f"{path}/{folder}", recursive=True, allow_not_found=True)
        found = (info.path for info in files.get_file_info(selector) if info.type == FileType.File)
        return sorted(name[len(path) + 1 :] for name in found if name.endswith(".parquet"))


def entry_name(number: int) -> str:
    """Return the path of an entry, relative to the root."""
    return f"_commits/{number:020}.json"


def _number(name: str) -> int:
    """Return the number of an entry's path; 0 for a commit of an earlier version."""
    stem = name.removeprefix("_commits/").removesuffix(".json")
    return int(stem) if stem.isdecimal() and len(stem) == 20 else 0


def boundary_ms(now_ms: int, horizon_ms: int) -> int:
    """Return the end of the horizon, rounded up to whole hours."""
    return up_to_hour(now_ms + horizon_ms)
