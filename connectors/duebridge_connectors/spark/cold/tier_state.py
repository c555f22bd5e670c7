"""The state after a log of commits: the cold rows, by file.

    files    a file counts from the commit that adds it (a demote's: that removed it from the store)
    returned up to which due instant a file's rows are in the store again
    pulled   lists of single rows that are, of files that still wait, or that a later row ended
    spent    files that no longer count, and since when: kept for readers and backups, then swept

Commits add or take, and taking again changes nothing: so jobs that overlap need no order.
"""

from collections.abc import Iterable

import msgspec

from duebridge_connectors.spark.cold.parquet.slices import (
    FileSlice,
    range_of,
    read_slice,
    up_to_hour,
)

DEMOTED, REMOVED, SCHEDULED, HYDRATED = "demoted", "removed", "scheduled", "hydrated"
COMPACTED, SWEPT, SIFTED = "compacted", "swept", "sifted"
VOID_LIST = "void.parquet"  # the name of lists of rows that the store judged: they never counted


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of the tier; paths are relative to its root.

    `files` are new. `taken` are files, or slices of them, that are completely in the store now;
    `pulled` are lists of single rows that are, of files that still wait. `removed` and `void` count
    the copies of a batch by outcome. `merged` lists of pulled rows are in a new one. `swept` files
    are deleted. `keeps_progress`: the store knows how far the batch is demoted whatever its age;
    it forgot that of batches of versions up to 0.2.
    """

    kind: str
    batch: str
    at_ms: int
    rows: int = 0
    files: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    pulled: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    swept: tuple[str, ...] = ()
    removed: int = 0
    void: int = 0
    keeps_progress: bool = False


class TierState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The slices whose rows are cold, and `pulled`, the lists of their rows that no longer are.

    `unfinished` batches do not count yet: the store may still have their envelopes. `returned` has
    every file that counts, with the instant before which its rows are in the store, 0 for none.
    `earlier` are commits in the form of versions up to 0.2 that this state includes.
    """

    returned: dict[str, int] = {}
    pulled: list[str] = []
    unfinished: list[Commit] = []
    spent: dict[str, int] = {}
    earlier: list[str] = []

    @property
    def files(self) -> list[str]:
        """The files whose rows are cold, each without what has returned."""
        return [str(FileSlice(file, from_ms)) for file, from_ms in self.returned.items()]

    @property
    def known(self) -> list[str]:
        """All files whose rows are cold, or will be once the store has removed them."""
        return [*self.files, *(file for batch in self.unfinished for file in batch.files)]

    @property
    def void(self) -> list[str]:
        """The lists of rows that never counted, since the store judged them instead."""
        return [file for file in self.pulled if file.endswith(VOID_LIST)]

    def due_before(self, until_ms: int) -> list[str]:
        """Return the slices that are due before an instant, to the full hour.

        A file that also has later rows is named with its bound, so taking what is returned here
        takes exactly the rows that it names.
        """
        return self._within(0, up_to_hour(until_ms))

    def due_from(self, from_ms: int) -> list[str]:
        """Return the slices that are not in `due_before` of the same instant."""
        return self._within(up_to_hour(from_ms), 0)

    def _within(self, from_ms: int, until_ms: int) -> list[str]:
        found = []
        for file, returned_ms in self.returned.items():
            begin_ms, end_ms = range_of(str(FileSlice(file, returned_ms)))
            if end_ms <= from_ms or (until_ms and begin_ms >= until_ms):
                continue
            lower = from_ms if from_ms > begin_ms else returned_ms
            upper = until_ms if until_ms and until_ms < end_ms else 0
            found.append(str(FileSlice(file, lower, upper)))
        return found

    def accepts(self, commit: Commit) -> bool:
        """Whether a commit still fits: a second removal, or a merge of what has changed, does not.

        What a hydrate took fits always: at worst another job took it first.
        """
        if commit.kind == REMOVED:
            return commit.batch in {batch.batch for batch in self.unfinished}
        if commit.kind == COMPACTED:
            return {*commit.taken} <= {*self.files} and {*commit.merged} <= {*self.pulled}
        return True


def advanced(state: TierState, commits: Iterable[Commit], earlier: Iterable[str] = ()) -> TierState:
    """Return the state after more commits, whatever their order."""
    log = [*commits]
    waiting = {commit.batch: commit for commit in state.unfinished}
    waiting |= {commit.batch: commit for commit in log if commit.kind == DEMOTED}
    finished = {commit.batch for commit in log if commit.kind == REMOVED} & {*waiting}
    added = [waiting.pop(batch) for batch in sorted(finished)]
    added += [commit for commit in log if commit.kind != DEMOTED]
    returned = state.returned | {file: 0 for commit in added for file in commit.files}
    spent = dict(state.spent)
    for commit in log:
        _take(returned, spent, commit)
    pulled = [*state.pulled, *(file for commit in log for file in commit.pulled)]
    merged = {file: commit.at_ms for commit in log for file in commit.merged if file in pulled}
    swept = {file for commit in log for file in commit.swept}
    return TierState(
        returned=returned,
        pulled=[file for file in pulled if file not in merged],
        unfinished=[*waiting.values()],
        spent={file: at for file, at in (spent | merged).items() if file not in swept},
        earlier=[file for file in (*state.earlier, *earlier) if file not in swept],
    )


def _take(returned: dict[str, int], spent: dict[str, int], commit: Commit) -> None:
    for name in commit.taken:
        file, _, until_ms = read_slice(name)
        if file not in returned:
            continue
        if until_ms and until_ms < range_of(file).until_ms:
            returned[file] = max(returned[file], until_ms)
        else:
            del returned[file]
            spent[file] = commit.at_ms
