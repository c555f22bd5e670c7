"""Measures all jobs, and writes their figures where docs/spark/README.md has them."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.bench.spark.result import GOALS, Result
from tests.support.checkout import ROOT

PAGE = ROOT / "docs/spark/README.md"
BEGIN, END = "<!-- figures: python -m tests.bench.spark table -->\n", "<!-- end of figures -->\n"
RATES = ["job", "rows", "a second", "to reach", "a C client, the same bytes", "again"]
COSTS = ["job", "Java", "Python", "the store's scripts", "the rest of the store", "sum"]


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
