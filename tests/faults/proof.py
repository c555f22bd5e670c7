"""The bounds, then the fault matrix until enough was accepted and broken: `make proof`.

The report is written after every round; interrupted, the proof goes on where it was.
Exit 0: held; 1: broken, its histories kept; 2: too little.

    python -m tests.faults.proof --accepted 4000 --effective 4 --only worker_killed,store_killed
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from tests.faults.burst import BODY_BYTES, LARGE_BYTES, run_burst
from tests.faults.outage import run_outage
from tests.faults.rig import run_scenario
from tests.faults.scenario import BROKERS, Result
from tests.faults.scenarios.worker_faults import library
from tests.faults.servers.stack import NAMES, Stack
from tests.faults.table import MATRIX, SCENARIOS
from tests.faults.tally import TRIALS, Run, enough, report
from tests.support.checkout import ROOT
from tests.support.model.histories import commit, machine
from tests.support.proofs import RunFile, add_options, exit_code, run_in

HOME = ROOT / ".services" / "proof"
REPORT = Path("docs", "proof.md")
INTERRUPTED = 130
BOUNDS = [
    *(("outage", broker) for broker in BROKERS),
    ("burst", "kafka"),
    ("burst_of_large", "kafka"),
]
TRIES = 3  # of a scenario in a round: a fault that struck nobody is tried again


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="proof", description=__doc__.splitlines()[0])
    parser.add_argument("--accepted", type=int, default=300_000, help="envelopes, of each broker")
    parser.add_argument("--effective", type=int, default=100, help="faults, of each broker")
    parser.add_argument("--count", type=int, default=4000, help="envelopes of one run, at least")
    parser.add_argument("--only", default="", help="these scenarios, by name")
    parser.add_argument("--broker", choices=BROKERS, help="this broker only")
    parser.add_argument("--seed", default="1", help="another one makes other envelopes")
    parser.add_argument("--rounds", type=int, default=1000, help="begin no round beyond so many")
    parser.add_argument("--hours", type=float, default=3.0, help="begin no run after so long")
    parser.add_argument("--outage-s", type=float, default=600, help="how long a broker is away")
    parser.add_argument("--burst", type=int, default=1_000_000, help="envelopes due at once")
    parser.add_argument("--large", type=int, default=2_000, help="the same, of 256 KiB each")
    add_options(parser, HOME, ROOT / REPORT)
    return parser.parse_args(arguments)


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program that tells how far it is


class Proof:
    """The rounds; the bounds are the round before the first."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._chosen, self._home, self._commit = chosen, chosen.home, commit(REPORT)
        self._file = RunFile(self._home, Run, anew=chosen.anew)
        self.runs = self._file.runs
        if others := {run.commit for run in self.runs} - {self._commit}:
            sys.exit(f"{self._file.path} has runs of {', '.join(others)}: begin with --anew")
        self._give_up_at = time.monotonic() + chosen.hours * 3600
        self._bounds, self._matrix = self._wanted(BOUNDS), self._wanted(MATRIX)
        known = {name for name, _ in (*BOUNDS, *MATRIX)}
        if set(filter(None, chosen.only.split(","))) - known or not (self._bounds or self._matrix):
            sys.exit(f"--only: expected names of {', '.join(sorted(known))}; got {chosen.only}")
        if library() is None and any(name.startswith("clocks_") for name, _ in self._matrix):
            sys.exit("libfaketime is missing: apt-get install faketime, or leave clocks_* out")

    def _wanted(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        only, broker = self._chosen.only, self._chosen.broker
        names = only.split(",") if only else [name for name, _ in pairs]
        return [each for each in pairs if each[0] in names and broker in (None, each[1])]

    def is_over(self) -> bool:
        return all(self._is_done(TRIALS, *each) for each in self._bounds) and all(
            enough(self.runs, broker, self._chosen.accepted, self._chosen.effective)
            for broker in {broker for _, broker in self._matrix}
        )

    def go_on(self) -> None:
        """Run rounds, each whole, until there is enough or the time is over."""
        folder = Path(tempfile.mkdtemp(prefix="stack-", dir=self._home))
        stack = Stack(folder)
        try:
            for number in range(TRIALS, self._chosen.rounds + 1):
                if self.is_over() or not self._round(stack, number):
                    break
                self.write_report()
        finally:
            stack.close()
            shutil.rmtree(folder, ignore_errors=True)
            self.write_report()

    def _is_done(self, number: int, name: str, broker: str) -> bool:
        tries = [
            run.result
            for run in self.runs
            if (run.round, run.result.scenario, run.result.broker) == (number, name, broker)
        ]
        return len(tries) >= TRIES or any(each.outcome != "INVALID" for each in tries)

    def _round(self, stack: Stack, number: int) -> bool:
        """Run what is left of a round; returns False when the time is over."""
        for name, broker in self._bounds if number == TRIALS else self._matrix:
            while not self._is_done(number, name, broker):
                if time.monotonic() > self._give_up_at:
                    say("the time is over; the same command goes on")
                    return False
                self._run(stack, number, name, broker)
        return True

    def _run(self, stack: Stack, number: int, name: str, broker: str) -> None:
        place = f"{self._chosen.seed}:{number}:{name}:{broker}:{len(self.runs)}"
        seed = sha256(place.encode()).hexdigest()[:8]
        folder: Path = self._home / f"{name}-{broker}-{seed}"

        def failed(error: Exception) -> Result:
            text = "".join(traceback.format_exception(error))
            return Result(scenario=name, broker=broker, seed=seed, violations={"failed": [text]})

        of = partial(self._result, stack, name, broker, folder, seed)
        self._note(Run(self._commit, number, run_in(folder, of, failed)))

    def _result(self, stack: Stack, name: str, broker: str, home: Path, seed: str) -> Result:
        chosen = self._chosen
        if name == "outage":
            return run_outage(stack, broker, home, seed, chosen.outage_s)
        if name in SCENARIOS:
            return run_scenario(stack, SCENARIOS[name], broker, home, seed, chosen.count)
        stack.up(*NAMES)
        is_large = name == "burst_of_large"
        size = (chosen.large, LARGE_BYTES) if is_large else (chosen.burst, BODY_BYTES)
        result = run_burst(stack.kafka_bootstrap(), home, seed, *size)
        return msgspec.structs.replace(result, scenario=name)

    def _note(self, run: Run) -> None:
        self._file.note(run)
        found = run.result
        say(
            f"{run.round:>3} {found.scenario:<28} {found.broker:<9} {found.outcome:<8}"
            f" {found.effective}/{found.planned} faults {found.accepted:>6} accepted"
            f" {found.duplicates:>4} repeated {found.seconds:>6.1f} s  seed {found.seed}"
        )
        for kind, ids in found.violations.items():
            say(f"    {kind}: {len(ids)}, first {ids[0]}")
        for each in found.bounds:
            if not each.is_kept:
                say("    {}: found {}, at most {}".format(each.what, *each.words))
        if found.outcome == "INVALID":
            say(f"    {'; '.join(found.seen)}")

    def write_report(self) -> None:
        text = report(self.runs, self._commit, machine(), self._chosen.count)
        self._chosen.report.write_text(text)


def main(arguments: Sequence[str]) -> int:
    proof = Proof(options(arguments))
    # So that the services end with us, however we are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED))
    proof.go_on()
    return exit_code([run.result for run in proof.runs], is_over=proof.is_over())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
