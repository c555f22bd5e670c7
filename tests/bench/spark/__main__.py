"""What Spark's side of the product can do, on this machine: `python -m tests.bench.spark --help`.

Each figure is of a warm session: the first round is not counted. Wall time is the machine's and its
other work's; CPU is of all processes of the run, and of the store. `intake` reads the Kafka of
`make services-up`: eval "$(python3 deploy/local/services.py env)".
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.spark.bulk import measure_read, measure_schedule
from tests.bench.spark.cold import measure_demote, measure_hydrate
from tests.bench.spark.intake import measure_intake
from tests.bench.spark.reconcile import measure_reconcile
from tests.bench.spark.stage import Round, Stage, opened_stage

PROGRAMS: dict[str, Callable[[Stage, int], Round]] = {
    "schedule": measure_schedule,
    "read": measure_read,
    "demote": measure_demote,
    "hydrate": measure_hydrate,
    "reconcile": measure_reconcile,
    "intake": measure_intake,
}


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.spark", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=sorted(PROGRAMS))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shards", type=int, default=4)
    return parser.parse_args(arguments)


def main() -> int:
    chosen = options(sys.argv[1:])
    with tempfile.TemporaryDirectory() as home, opened_stage(Path(home), chosen.shards) as stage:
        for number in range(chosen.rounds + 1):
            found = PROGRAMS[chosen.what](stage, chosen.rows)
            print(f"{chosen.what} {f'round {number}' if number else 'warm-up'}: {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
