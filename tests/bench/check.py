"""Compares what bridge and intakes cost with the figures committed here: `make bench-check`.

    make bench-check                    # exit 1 where a figure is more than 20 % above its own
    make bench-check BENCH=--update     # write the figures of this run into baseline.json

No wall time is compared, and no microsecond: a machine twice as fast would pass with twice the
work. CPU is compared as a multiple of what the same client alone took in the same run, publishing
or consuming (of the HTTP interface: kafka-python), round trips as they are. Each is the least of
its rounds, since what disturbs a round only adds. Machines differ in what a client costs beside a
server: where all is above, check out the commit of baseline.json and run it there too.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.http import least

BASELINE = Path(__file__).with_name("baseline.json")
DUEBRIDGE = str(Path(sys.executable).with_name("duebridge"))
TOLERANCE = 0.2
ADDRESSES = {
    "--store": "DUEBRIDGE_TEST_REDIS_URL",
    "--kafka": "DUEBRIDGE_TEST_KAFKA_BOOTSTRAP",
    "--rabbitmq": "DUEBRIDGE_TEST_RABBITMQ_URL",
}

Figures = dict[str, float]
Row = Mapping[str, Any]


def run_bench(*options: str) -> list[Row]:
    """Run the command on the local services; returns its rows."""
    found = {flag: os.environ.get(name) for flag, name in ADDRESSES.items()}
    addresses = [word for flag, value in found.items() if value for word in (flag, value)]
    command = [DUEBRIDGE, "bench", *addresses, "--output", "json", *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


def figures_of(rows: Iterable[Row]) -> Figures:
    """Return what is compared, by a name that says what it is."""
    rows = list(rows)
    figures: Figures = {}
    for broker in sorted({row["broker"] for row in rows}):
        alone, schedule, bridge = (
            least_of(rows, broker, side) for side in ("client alone", "schedule", "bridge")
        )
        bare, intake = (least_of(rows, broker, side) for side in ("bare consumer", "intake"))
        alone_us = alone["worker_cpu_us"]
        store_us = schedule["store_cpu_us"] + bridge["store_cpu_us"]
        figures |= {
            f"{broker}: bridge CPU / client alone": bridge["worker_cpu_us"] / alone_us,
            f"{broker}: schedule CPU / client alone": schedule["worker_cpu_us"] / alone_us,
            f"{broker}: store CPU / client alone": store_us / alone_us,
            f"{broker}: store calls a message": schedule["store_calls"] + bridge["store_calls"],
            f"{broker}: intake CPU / bare consumer": intake["worker_cpu_us"]
            / bare["worker_cpu_us"],
            f"{broker}: store calls a message of an intake": intake["store_calls"],
        }
    return {name: round(value, 4) for name, value in figures.items()}


def http_figures(alone_us: float, rounds: int) -> Figures:
    """Return what an envelope costs the HTTP interface; posts share calls as they happen to come.

    So only the calls of a stream are compared.
    """
    found = asyncio.run(least(rounds))
    figures = {
        f"http: {work} CPU / client alone": cost.cpu_us / alone_us for work, cost in found.items()
    }
    figures["http: store calls a line"] = found["line"].calls
    return {name: round(value, 4) for name, value in figures.items()}


def least_of(rows: Sequence[Row], broker: str, what: str) -> Figures:
    """Return the least of each figure over the rounds."""
    found = [row for row in rows if (row["broker"], row["what"]) == (broker, what) and row["round"]]
    names = ("worker_cpu_us", "store_cpu_us", "store_calls")
    return {name: min(row[name] for row in found) for name in names}


def faults_of(found: Figures, committed: Figures) -> list[str]:
    """Return a line for each figure that is beyond the tolerance, or not committed."""
    faults = []
    for name, value in found.items():
        if name not in committed:
            faults.append(f"{name}: {value:.4f}; not in {BASELINE.name}, run with --update")
        elif value > committed[name] * (1 + TOLERANCE):
            more = value / committed[name] - 1
            faults.append(f"{name}: {value:.4f}, {more:.0%} above the committed {committed[name]}")
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="commit the figures of this run")
    parser.add_argument("--rounds", default="5")
    asked = parser.parse_args(arguments)
    rows = run_bench("--only", "bridge,intakes", "--count", "10000", "--rounds", asked.rounds)
    alone_us = least_of(rows, "kafka", "client alone")["worker_cpu_us"]
    found = figures_of(rows) | http_figures(alone_us, int(asked.rounds))
    if asked.update:
        BASELINE.write_text(json.dumps(found, indent=2) + "\n")
        return 0
    committed = json.loads(BASELINE.read_text())
    for name, value in found.items():
        print(f"{name:<45}{value:>9.4f}  committed {committed.get(name, float('nan')):>9.4f}")
    if any(row.get("others_calls") for row in rows):
        print("others used the store meanwhile: its CPU is theirs too")
    faults = faults_of(found, committed)
    for fault in faults:
        print(f"FAILED {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
