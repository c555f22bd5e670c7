"""The page of what failovers cost, and the table of `docs/durability.md`: of the runs alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tests.failover.judgement import LOSSES
from tests.failover.rig import DURABILITIES, Result, Scenario

PAGE = Path(__file__).with_name("page.md")
BEGIN, END = "<!-- by make proof-ha -->", "<!-- end -->"


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


def summary(runs: Sequence[Run], scenarios: Mapping[str, Scenario]) -> str:
    """Return a line for each failure: what each durability lost, and what it promises to keep."""
    lines = [
        f"| what fails | {' | '.join(f'`{each}`' for each in DURABILITIES)} |",
        f"|---|{'---|' * len(DURABILITIES)}",
    ]
    for scenario in scenarios.values():
        cells = [_lost(runs, scenario, durability) for durability in DURABILITIES]
        lines.append(f"| {' | '.join([scenario.what, *cells])} |")
    return "\n".join(lines)


def _lost(runs: Sequence[Run], scenario: Scenario, durability: str) -> str:
    """Return one cell; bold where nothing may be lost."""
    if durability not in scenario.tried:
        return "-"
    name = scenario.name, durability
    found = [run.result.counts for run in runs if name == _name(run) and _struck(run.result)]
    if not found:
        return "not run"
    lost, back = (sum(len(getattr(each, kind)) for each in found) for kind in LOSSES[:2])
    text = f"{lost:,} and {back:,} of {sum(each.accepted for each in found):,}"
    return f"**{text}**" if durability in scenario.keeps_all else text


def put_between_marks(page: str, table: str) -> str:
    """Return a page with the table in the place of what it has between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"expected the marks {BEGIN} and {END}"
    assert end, f"expected the mark {END}"
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def _name(run: Run) -> tuple[str, str]:
    return run.result.scenario, run.result.durability


def _struck(result: Result) -> bool:
    return result.outcome != "INVALID"


def _rows(results: Sequence[Result], scenarios: Mapping[str, Scenario]) -> list[str]:
    rows = []
    for scenario in scenarios.values():
        for durability in scenario.tried:
            name = scenario.name, durability
            found = [each for each in results if (each.scenario, each.durability) == name]
            well = "held" if durability in scenario.keeps_all else "reported"
            rows.append(_row(f"{scenario.what} | {durability}", found, well))
    return rows


def _row(begin: str, found: Sequence[Result], well: str) -> str:
    struck = [each for each in found if _struck(each)]
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
