"""The page of what failovers cost: a pure function of the runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tests.failover.judgement import LOSSES
from tests.failover.rig import DURABILITIES, Result, Scenario

PAGE = Path(__file__).with_name("page.md")
KEPT = "loses nothing"
PROMISES = {
    "async": "what the new master had",
    "fsync": "what the new master had",
    "replicated": KEPT,
}


class Run(msgspec.Struct, frozen=True):
    """One line of the state file."""

    commit: str
    machine: str
    result: Result


def report(runs: Sequence[Run], scenarios: Mapping[str, Scenario]) -> str:
    """Return the page, in Markdown."""
    results = [run.result for run in runs]
    return PAGE.read_text("utf-8").format(
        commits=", ".join(sorted({run.commit for run in runs})),
        machine=", ".join(sorted({run.machine for run in runs})),
        runs=len(runs),
        rows="\n".join(_rows(results, scenarios)),
        broken="\n".join(_broken(results)) or "Nothing.",
    )


def _rows(results: Sequence[Result], scenarios: Mapping[str, Scenario]) -> list[str]:
    rows = []
    for scenario in scenarios.values():
        for durability in DURABILITIES:
            name = scenario.name, durability
            found = [each for each in results if (each.scenario, each.durability) == name]
            promise = PROMISES[durability] if scenario.fails_over else KEPT
            well = "held" if promise == KEPT else "reported"
            rows.append(_row(f"{scenario.what} | {durability} | {promise}", found, well))
    return rows


def _row(begin: str, found: Sequence[Result], well: str) -> str:
    struck = [each for each in found if each.outcome != "INVALID"]
    if not struck:
        return f"| {begin} | **not run** |{' |' * 9}"
    counts = [each.counts for each in struck]
    cells = [len(struck), sum(each.accepted for each in counts)]
    cells += [sum(len(getattr(each, kind)) for each in counts) for kind in LOSSES]
    cells += [sum(each.duplicates for each in counts), sum(each.indeterminate for each in counts)]
    resumed = max((s for each in struck for s in each.resumed_s), default=0.0)
    is_held = all(each.outcome == "held" for each in struck)
    words = [f"{cell:,}" for cell in cells]
    return f"| {' | '.join([begin, *words, f'{resumed:.1f}', well if is_held else '**BROKEN**'])} |"


def _broken(results: Sequence[Result]) -> list[str]:
    found = [
        f"- {each.scenario}, {each.durability}, seed {each.seed}:"
        f" {kind} {len(what)}, first {what[0]}"
        for each in results
        for kind, what in each.violations.items()
    ]
    invalid = sum(each.outcome == "INVALID" for each in results)
    return [*found, f"- {invalid} runs are not counted: their fault was not seen to strike."]
