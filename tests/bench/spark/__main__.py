"""What Spark's side of the product can do, on this machine: `python -m tests.bench.spark --help`.

Each figure is the median round of a warm session, beside the goal, and beside what a C client
reaches that only moves the same bytes, in the same run. Wall time is the machine's and its other
work's; CPU is of all processes of the run, and of the store. `intake` reads the Kafka of
`make services-up`: eval "$(python3 deploy/local/services.py env)".

`table` runs all jobs, each in a process of its own, and writes docs/spark/README.md.
"""

import argparse
import tempfile
from pathlib import Path

from tests.bench.spark.jobs import demote, hydrate, intake, journal, read, schedule
from tests.bench.spark.limit import Limit, entries_read, limit, records_read, removed, written
from tests.bench.spark.stage import Stage, opened_stage
from tests.bench.spark.table import GOALS, Result, write_tables
from tests.bench.spark.verdict import reconcile

JOBS = {job.__name__: job for job in (schedule, read, intake, demote, hydrate, journal, reconcile)}
LIMITS: dict[str, Limit] = {
    **dict.fromkeys(("schedule", "intake", "hydrate"), written),
    "read": records_read,
    "demote": removed,
    "journal": entries_read,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bench.spark", description=__doc__.splitlines()[0])
    parser.add_argument("job", choices=[*GOALS, "table"])
    parser.add_argument("--result", type=Path, help="a file for the result, as JSON")
    parser.add_argument("--rows", type=int, help="by default as many as docs/spark/README.md says")
    for name, default in (("--rounds", 3), ("--shards", 4)):
        parser.add_argument(name, type=int, default=default)
    chosen = parser.parse_args()
    if chosen.job == "table":
        write_tables(chosen.rows, chosen.rounds)
    else:
        run(chosen)


def run(chosen: argparse.Namespace) -> None:
    """Measure a job, and print or save what it reached."""
    rows = chosen.rows or GOALS[chosen.job].rows
    with tempfile.TemporaryDirectory() as home, opened_stage(Path(home), chosen.shards) as stage:
        result = measured(stage, chosen.job, rows, chosen.rounds)
    print(result)
    if chosen.result:
        result.save(chosen.result)


def measured(stage: Stage, name: str, rows: int, rounds: int) -> Result:
    """Run a job several times after a warm-up; return the median, and the C client's rate."""
    found = []
    for number in range(rounds + 1):
        found.append(stage.measured(rows, JOBS[name](stage, rows)))
        print(f"{name} {f'round {number}' if number else 'warm-up'}: {found[-1]}", flush=True)
    median = sorted(found[1:], key=lambda each: each.rate)[rounds // 2]
    if name == "demote":
        JOBS[name](stage, rows)  # what it removes is there again
    most = limit(stage.client, stage.home, rows, LIMITS[name]) if name in LIMITS else None
    return Result(name, median, most)


if __name__ == "__main__":
    main()
