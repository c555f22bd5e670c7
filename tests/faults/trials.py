"""The bounds, tried at full size once in a proof: one trial a process, with a stack of its own.

    python -m tests.faults.trials outage kafka --home FOLDER --outage-s 600

It prints its result as one line of JSON; `make proof` runs it, and remembers that line.
"""

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.faults.burst import BODY_BYTES, LARGE_BYTES, run_burst
from tests.faults.outage import run_outage
from tests.faults.scenario import BROKERS, Result
from tests.faults.stack import Stack
from tests.support.checkout import ROOT

OUTAGE, BURST, LARGE = "outage", "burst", "burst_of_large"
# Those of a group run side by side: an outage is mostly waiting.
GROUPS = ([(OUTAGE, broker) for broker in BROKERS], [(BURST, "kafka")], [(LARGE, "kafka")])
NAMES = {name for group in GROUPS for name, _ in group}
INTERRUPTED = 130


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trials", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(NAMES))
    parser.add_argument("broker", choices=BROKERS)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--seed", default="1")
    add_sizes(parser)
    return parser.parse_args(arguments)


def add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--outage-s", type=float, default=600, help="how long a broker is away")
    parser.add_argument("--burst", type=int, default=1_000_000, help="envelopes due at once")
    parser.add_argument("--large", type=int, default=2_000, help="the same, of 64 KiB each")


def run_trial(chosen: argparse.Namespace) -> Result:
    stack = Stack(chosen.home / "stack")
    try:
        if chosen.name == OUTAGE:
            return run_outage(stack, chosen.broker, chosen.home, chosen.seed, chosen.outage_s)
        is_large = chosen.name == LARGE
        count, body_bytes = (chosen.large, LARGE_BYTES) if is_large else (chosen.burst, BODY_BYTES)
        result = run_burst(stack.kafka_bootstrap(), chosen.home, chosen.seed, count, body_bytes)
        return msgspec.structs.replace(result, scenario=chosen.name)
    finally:
        stack.close()
        shutil.rmtree(stack.home)


def start_trial(
    name: str, broker: str, home: Path, seed: str, sizes: argparse.Namespace
) -> "subprocess.Popen[bytes]":
    """Start one in a process of its own; `result_of` waits for it."""
    words = [name, broker, "--home", home, "--seed", seed, "--outage-s", sizes.outage_s]
    words += ["--burst", sizes.burst, "--large", sizes.large]
    command = [sys.executable, "-m", "tests.faults.trials", *map(str, words)]
    with (home / "trial.log").open("wb") as log:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=ROOT)


def result_of(
    trial: "subprocess.Popen[bytes]", name: str, broker: str, home: Path, seed: str
) -> Result:
    said, _ = trial.communicate()
    if trial.returncode == 0:
        return msgspec.json.decode(said, type=Result)
    violations = {"failed": [(home / "trial.log").read_text()]}
    return Result(scenario=name, broker=broker, seed=seed, violations=violations)


def main(arguments: Sequence[str]) -> int:
    # So that the services end with us, however we are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED))
    result = run_trial(options(arguments))
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
