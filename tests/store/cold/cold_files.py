"""What a log of a cold tier says, in memory, for histories of its jobs."""

from dataclasses import dataclass, field
from typing import NamedTuple


class FileRow(NamedTuple):
    """A row of the files."""

    batch: str
    id: str
    generation: int
    due_at_ms: int
    body: bytes


@dataclass
class Files:
    """The log: batches as they were committed, and the rows that returned.

    `cold` rows have left the store, `refused` ones it did not take back, `counts` is how many of a
    batch have left it.
    """

    batches: dict[str, list[FileRow]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    taken: set[FileRow] = field(default_factory=set)
    refused: set[FileRow] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    cold: set[FileRow] = field(default_factory=set)
    hydrated_until_ms: int = 0

    def note_removed(self, row: FileRow, count: int) -> None:
        """So many rows of the batch have left the store, this one last or not at all."""
        if count > self.counts.get(row.batch, 0):
            self.counts[row.batch] = count
            self.note_cold(row)

    def note_cold(self, row: FileRow) -> None:
        assert row.due_at_ms >= self.hydrated_until_ms, f"{row} goes cold when it should be back"
        self.cold.add(row)

    def note_hydrated(self, until_ms: int) -> None:
        self.hydrated_until_ms = until_ms
        for row in self.cold - self.taken - self.refused:
            assert row.due_at_ms >= until_ms, f"{row} is cold, and should be back"

    def unfinished(self) -> list[str]:
        return [batch for batch in self.batches if batch not in self.removed]

    def rows(self, *, known: bool = False) -> list[FileRow]:
        """The rows that are cold; `known`: and those that a demote has still to remove."""
        names = self.batches if known else [b for b in self.batches if b in self.removed]
        return [row for name in names for row in self.batches[name] if row not in self.taken]
