"""What Spark's side of the product can do, on this machine: `python -m tests.bench.spark --help`.

Each figure is of a warm session: the first round is not counted. Wall time is the machine's and its
other work's; CPU is of all processes of the run, and of the store. `intake` reads the Kafka of
`make services-up`: eval "$(python3 deploy/local/services.py env)".
"""

import argparse
import tempfile
from pathlib import Path

from tests.bench.spark.jobs import demote, hydrate, intake, journal, read, schedule
from tests.bench.spark.stage import opened_stage
from tests.bench.spark.verdict import reconcile

JOBS = {job.__name__: job for job in (schedule, read, intake, demote, hydrate, journal, reconcile)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bench.spark", description=__doc__.splitlines()[0])
    parser.add_argument("job", choices=sorted(JOBS))
    for name, default in (("--rows", 1_000_000), ("--rounds", 3), ("--shards", 4)):
        parser.add_argument(name, type=int, default=default)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, opened_stage(Path(home), chosen.shards) as stage:
        for number in range(chosen.rounds + 1):
            found = stage.measured(chosen.rows, JOBS[chosen.job](stage, chosen.rows))
            print(f"{chosen.job} {f'round {number}' if number else 'warm-up'}: {found}")


if __name__ == "__main__":
    main()
