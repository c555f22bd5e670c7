"""What a job reached, beside its goal and the C client's limit."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.bench.spark.stage import Figures


class Goal(NamedTuple):
    """Rows a second to reach, None for none; and how many rows show it."""

    rate: int | None
    rows: int


GOALS = {
    "schedule": Goal(100_000, 1_000_000),
    "read": Goal(None, 1_000_000),
    "intake": Goal(45_000, 1_000_000),
    "demote": Goal(60_000, 1_000_000),
    "hydrate": Goal(60_000, 1_000_000),
    "journal": Goal(500_000, 5_000_000),
    "reconcile": Goal(166_667, 10_000_000),  # all in a minute
}


class Result(NamedTuple):
    """A median round; `limit` is the C client's rate, None for a job without the store."""

    job: str
    figures: Figures
    limit: float | None

    @property
    def goal(self) -> Goal:
        return GOALS[self.job]

    @property
    def verdict(self) -> str:
        """The goal, and whether it is reached."""
        if self.goal.rate is None:
            return "-"
        return f"{self.goal.rate:,}" + ("" if self.figures.rate >= self.goal.rate else ": **no**")

    def __str__(self) -> str:
        most = "" if self.limit is None else f"; a C client, the same bytes: {self.limit:,.0f}"
        return f"{self.job}: {self.figures}; to reach: {self.verdict}{most}"

    def save(self, file: Path) -> None:
        """Write it as JSON."""
        file.write_bytes(msgspec.json.encode(self))

    @staticmethod
    def read(file: Path) -> "Result":
        return msgspec.json.decode(file.read_bytes(), type=Result)
