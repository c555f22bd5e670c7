"""Failovers, counted: `make proof-ha`. Writes docs/durability-measured.md.

`durability.md` beside it gets a table of what was lost.

Interrupted, it goes on where it was.
Exit 0: held; 1: broken, its histories kept; 2: too few runs.

    python -m tests.failover.proof --times 2 --only killed,frozen --durability replicated
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.failover.rig import DURABILITIES, Result, run_scenario
from tests.failover.scenarios import SCENARIOS
from tests.failover.table import Run, put_between_marks, report, summary
from tests.support.checkout import ROOT
from tests.support.model.histories import commit, machine
from tests.support.proofs import RunFile, add_options, exit_code, run_in

HOME = ROOT / ".services" / "proof-ha"
REPORT = Path("docs", "durability-measured.md")
SUMMARY = "durability.md"  # beside the report
TIMES, TRIES = 20, 2  # a fault that was not seen to strike is tried again, so often as the others


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="proof-ha", description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=TIMES, help="runs of each, that struck")
    parser.add_argument("--only", default=",".join(SCENARIOS), help="these scenarios, by name")
    parser.add_argument("--durability", default=",".join(DURABILITIES), help="these settings")
    parser.add_argument("--at-once", type=int, default=1, help="runs at the same time")
    parser.add_argument("--minutes", type=float, default=600, help="begin no run after so long")
    add_options(parser, HOME, ROOT / REPORT)
    chosen = parser.parse_args(arguments)
    for given, known in ((chosen.only, SCENARIOS), (chosen.durability, DURABILITIES)):
        if set(given.split(",")) - set(known):
            parser.error(f"expected names of {', '.join(known)}; got {given}")
    return chosen


class Proof:
    """The rounds."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._chosen, self._home, self._commit = chosen, chosen.home, commit(REPORT)
        self._file = RunFile(self._home, Run, anew=chosen.anew)
        self.runs = self._file.runs
        self._give_up_at = time.monotonic() + 60 * chosen.minutes

    def go_on(self) -> bool:
        """Run rounds, one of each a round; return whether there are enough of all."""
        chosen = self._chosen.durability.split(",")
        wanted = [
            (name, durability)
            for name in self._chosen.only.split(",")
            for durability in SCENARIOS[name].tried
            if durability in chosen
        ]
        count, apart = self._chosen.at_once, multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(count, apart) as pool, ThreadPoolExecutor(count) as threads:
            for number in range(1, self._chosen.times + 1):
                come = partial(self._come_to, pool, number)
                enough = threads.map(come, *zip(*wanted, strict=True))
                if not all(list(enough)):
                    return False
                self.write_report()
        return True

    def _come_to(self, pool: ProcessPoolExecutor, number: int, name: str, durability: str) -> bool:
        """Run one until so many of it struck; return False where time or tries are over."""
        for _ in range(TRIES + 1):
            results = [run.result for run in tuple(self.runs)]
            found = [r for r in results if (r.scenario, r.durability) == (name, durability)]
            if sum(each.outcome != "INVALID" for each in found) >= number:
                return True
            if time.monotonic() > self._give_up_at:
                return False
            seed = f"{len(found):02}{os.urandom(3).hex()}"
            self._note(pool.submit(run_apart, self._home, name, durability, seed).result())
        return True

    def _note(self, result: Result) -> None:
        self._file.note(Run(self._commit, machine(), result))
        print(result, flush=True)  # noqa: T201 - a program that tells how far it is

    def write_report(self) -> None:
        self._chosen.report.write_text(report(self.runs, SCENARIOS))
        page = self._chosen.report.with_name(SUMMARY)
        if page.exists():
            page.write_text(put_between_marks(page.read_text(), summary(self.runs, SCENARIOS)))


def run_apart(home: Path, name: str, durability: str, seed: str) -> Result:
    """Run one, in a process of its own."""
    folder = home / f"{name}-{durability}-{seed}"
    failed = partial(Result.failed, name, durability, seed)
    return run_in(folder, partial(run_scenario, SCENARIOS[name], durability, folder, seed), failed)


def main(arguments: Sequence[str]) -> int:
    proof = Proof(options(arguments))
    is_over = proof.go_on()
    proof.write_report()
    return exit_code([run.result for run in proof.runs], is_over=is_over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
