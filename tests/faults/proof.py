"""The bounds, then the fault matrix until enough was accepted and broken: `make proof`.

Every run is a line of the state file, so that a proof that was interrupted goes on where it was.
The report is written after every round. Exit 0: held; 1: broken, its histories kept; 2: too little.

    python -m tests.faults.proof --accepted 4000 --effective 4 --only worker_killed,store_killed
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from tests.faults.rig import run_scenario
from tests.faults.scenario import BROKERS, Result
from tests.faults.stack import Stack
from tests.faults.table import MATRIX, SCENARIOS
from tests.faults.tally import TRIALS, Run, enough, report
from tests.faults.trials import GROUPS, NAMES, add_sizes, result_of, start_trial
from tests.faults.worker_faults import library
from tests.support.checkout import ROOT

HOME = ROOT / ".services" / "proof"
REPORT = Path("docs", "proof.md")
INTERRUPTED = 130
TRIES = 3  # of a scenario in a round: a fault that struck nobody is tried again


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="proof", description=__doc__.splitlines()[0])
    parser.add_argument("--accepted", type=int, default=300_000, help="envelopes, of each broker")
    parser.add_argument("--effective", type=int, default=100, help="faults, of each broker")
    parser.add_argument("--count", type=int, default=4000, help="envelopes of one run, at least")
    parser.add_argument("--only", default="", help="these scenarios, by name")
    parser.add_argument("--broker", choices=BROKERS, help="this broker only")
    parser.add_argument("--seed", default="1", help="another one makes other envelopes")
    parser.add_argument("--hours", type=float, default=3.0, help="begin no run after so long")
    parser.add_argument("--anew", action="store_true", help="forget the runs of an earlier proof")
    add_sizes(parser)
    parser.add_argument("--report", type=Path, default=ROOT / REPORT)
    parser.add_argument("--home", type=Path, default=HOME)
    return parser.parse_args(arguments)


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program that tells how far it is


def commit(root: Path = ROOT) -> str:
    """Return the commit that is being proved, and whether the tree has changes beside it.

    The report is none: a proof that goes on after it wrote one is still of the same commit.
    """
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    compare = ["git", "diff", "--quiet", "HEAD", "--", ".", f":(exclude){REPORT}"]
    is_dirty = subprocess.run(compare, cwd=root).returncode != 0
    return done.stdout.strip() + ("-dirty" if is_dirty else "")


def machine() -> str:
    """Return the machine's size, and not its name."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{os.cpu_count()} cores, {pages / 2**30:.0f} GiB"


class Proof:
    """The rounds, and the file that remembers them."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._chosen = chosen
        self._home = chosen.home
        self._home.mkdir(parents=True, exist_ok=True)
        self._state = self._home / "runs.jsonl"
        if chosen.anew:
            self._state.unlink(missing_ok=True)
        self._commit = commit()
        self.runs = self._load()
        self._give_up_at = time.monotonic() + chosen.hours * 3600
        wanted = chosen.only.split(",") if chosen.only else [*NAMES, *SCENARIOS]
        self._matrix = [
            (name, broker)
            for name, broker in MATRIX
            if name in wanted and chosen.broker in (None, broker)
        ]
        self._groups = [
            [each for each in group if each[0] in wanted and chosen.broker in (None, each[1])]
            for group in GROUPS
        ]
        if set(wanted) - SCENARIOS.keys() - NAMES or not (self._matrix or any(self._groups)):
            known = ", ".join((*SCENARIOS, *sorted(NAMES)))
            sys.exit(f"--only: expected names of {known}; got {chosen.only}")
        if library() is None and any(name.startswith("clocks_") for name, _ in self._matrix):
            sys.exit("libfaketime is missing: apt-get install faketime, or leave clocks_* out")

    def _load(self) -> list[Run]:
        if not self._state.exists():
            return []
        runs = msgspec.json.Decoder(Run).decode_lines(self._state.read_bytes())
        if others := {run.commit for run in runs} - {self._commit}:
            sys.exit(f"{self._state} has runs of {', '.join(others)}: begin with --anew")
        return runs

    def is_over(self) -> bool:
        brokers = {broker for _, broker in self._matrix}
        tried = all(self._is_done(TRIALS, *each) for group in self._groups for each in group)
        return tried and all(
            enough(self.runs, broker, self._chosen.accepted, self._chosen.effective)
            for broker in brokers
        )

    def go_on(self) -> None:
        """Try the bounds, and run rounds, each whole, until there is enough."""
        for group in self._groups:
            while left := [each for each in group if not self._is_done(TRIALS, *each)]:
                self._try(left)
                self.write_report()
        if self._matrix:
            self._run_rounds()

    def _try(self, group: Sequence[tuple[str, str]]) -> None:
        """Try bounds side by side."""
        begun = []
        try:
            for name, broker in group:
                folder, seed = self._folder(TRIALS, name, broker)
                trial = start_trial(name, broker, folder, seed, self._chosen)
                begun.append((trial, name, broker, folder, seed))
            for trial, name, broker, folder, seed in begun:
                result = result_of(trial, name, broker, folder, seed)
                self._keep(folder, Run(self._commit, TRIALS, result))
        finally:
            for trial, *_ in begun:
                trial.terminate()
                trial.wait()

    def _run_rounds(self) -> None:
        """Run rounds until there is enough or the time is over."""
        folder = Path(tempfile.mkdtemp(prefix="stack-", dir=self._home))
        stack = Stack(folder)
        try:
            number = max((run.round for run in self.runs), default=TRIALS) or 1
            while self._round(stack, number) and not self.is_over():
                number += 1
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
        for name, broker in self._matrix:
            while not self._is_done(number, name, broker):
                if time.monotonic() > self._give_up_at:
                    say("the time is over; the same command goes on")
                    return False
                self._run(stack, number, name, broker)
        self.write_report()
        return True

    def _folder(self, number: int, name: str, broker: str) -> tuple[Path, str]:
        """Return a fresh folder for a run, and its seed."""
        place = f"{self._chosen.seed}:{number}:{name}:{broker}:{len(self.runs)}"
        seed = sha256(place.encode()).hexdigest()[:8]
        folder: Path = self._home / f"{name}-{broker}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder, seed

    def _run(self, stack: Stack, number: int, name: str, broker: str) -> None:
        folder, seed = self._folder(number, name, broker)
        try:
            scenario = SCENARIOS[name]
            result = run_scenario(stack, scenario, broker, folder, seed, self._chosen.count)
        except Exception:  # of the run itself: it proves nothing, and must be seen
            text = traceback.format_exc()
            result = Result(scenario=name, broker=broker, seed=seed, violations={"failed": [text]})
        self._keep(folder, Run(self._commit, number, result))

    def _keep(self, folder: Path, run: Run) -> None:
        """Note a run; where it held, its folder is not needed."""
        if run.result.outcome == "held":
            shutil.rmtree(folder)
        self._note(run)

    def _note(self, run: Run) -> None:
        self.runs.append(run)
        with self._state.open("ab") as file:
            file.write(msgspec.json.encode(run) + b"\n")
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
        self._chosen.report.write_text(
            report(self.runs, self._commit, machine(), self._chosen.count)
        )


def main(arguments: Sequence[str]) -> int:
    proof = Proof(options(arguments))
    # So that the services end with us, however we are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED))
    proof.go_on()
    outcomes = {run.result.outcome for run in proof.runs}
    if "BROKEN" in outcomes:
        return 1
    return 0 if proof.is_over() else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
