"""What jobs reached beside their goals, and its tables in docs/spark/README.md."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.bench.spark.stage import Figures
from tests.support.checkout import ROOT

PAGE = ROOT / "docs/spark/README.md"
BEGIN, END = "<!-- figures: python -m tests.bench.spark table -->\n", "<!-- end of figures -->\n"
RATES = ["job", "rows", "a second", "to reach", "a C client, the same bytes", "again"]
COSTS = ["job", "Java", "Python", "the store's scripts", "the rest of the store", "sum"]


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


def write_tables(rows: int | None, rounds: int) -> None:
    """Measure every job in a process of its own; `rows` instead of each one's own number."""
    with tempfile.TemporaryDirectory() as home:
        results = [_measured(Path(home) / name, name, rows, rounds) for name in GOALS]
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(head + BEGIN + rendered(results) + END + tail)


def rendered(results: Iterable[Result]) -> str:
    """Return what is reached, and then where each microsecond goes."""
    results = [*results]
    rates = _table(RATES, (_rates(each) for each in results))
    costs = _table(COSTS, (_costs(each) for each in results))
    return f"\n{rates}\nCPU of a row, in us:\n\n{costs}\n".replace(" us", " µs")


def _measured(file: Path, name: str, rows: int | None, rounds: int) -> Result:
    words = ["--rounds", str(rounds), "--result", str(file), *(["--rows", str(rows)] * bool(rows))]
    subprocess.run([sys.executable, "-m", "tests.bench.spark", name, *words], cwd=ROOT, check=True)
    return Result.read(file)


def _rates(each: Result) -> list[str]:
    most = "-" if each.limit is None else f"{each.limit:,.0f}"
    again = f"`{each.job} --rows {each.figures.rows}`"
    return [
        each.job,
        f"{each.figures.rows:,}",
        f"{each.figures.rate:,.0f}",
        each.verdict,
        most,
        again,
    ]


def _costs(each: Result) -> list[str]:
    used = each.figures[2:]
    return [each.job, *(f"{us:.1f}" for us in (*used, sum(used)))]


def _table(names: list[str], rows: Iterable[list[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
