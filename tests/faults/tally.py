"""What many runs add up to, and the page that says so: pure functions of the runs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path

import msgspec

from tests.faults.rig import LEASE_S
from tests.faults.scenario import BROKERS, Bound, Result
from tests.faults.table import SCENARIOS

SUMS = {
    **{name: name for name in ("accepted", "delivered", "dead", "cancelled", "recovered")},
    "effective": "effective faults",
    "duplicates": "repeated",
}
ZERO = ("lost", "early", "after_cancel", "unexpected", "corrupt", "stuck", "in_two_places")

TRIALS = 0  # the round of an outage or a burst: it adds nothing to what the rounds accepted
MILLION = 1_000_000
MOST_REPEATED = 0.001  # of what was accepted
RESTARTS = 500
EMPTIED_WITHIN_S = LEASE_S + 1 + 10 + 1.5
STOPS = ("worker_terminated", "workers_restarted")
SUBJECT = re.compile(r"^[a-z]+: ")  # of a bound: which envelopes of its scenario
PAGE = Path(__file__).with_name("page.md")
KNOWN = Path(__file__).with_name("known.md")  # what no run can tell


class Run(msgspec.Struct, frozen=True):
    """One line of the state file."""

    commit: str
    round: int
    result: Result


def of_broker(runs: Iterable[Run], broker: str) -> list[Result]:
    """Return the rounds' runs that count: INVALID ones prove nothing."""
    results = [run.result for run in runs if run.result.broker == broker and run.round != TRIALS]
    return [each for each in results if each.outcome != "INVALID"]


def enough(runs: Iterable[Run], broker: str, accepted: int, effective: int) -> bool:
    found = of_broker(runs, broker)
    return (
        sum(each.accepted for each in found) >= accepted
        and sum(each.effective for each in found) >= effective
    )


def report(runs: Sequence[Run], commit: str, machine: str, count: int) -> str:
    """Return the page, in Markdown."""
    counted = [each for broker in BROKERS for each in of_broker(runs, broker)]
    short = [f"- {each}" for each in (*_broken(runs), *shortfalls(counted))]
    short.append(KNOWN.read_text("utf-8").rstrip())
    return PAGE.read_text("utf-8").format(
        commit=commit,
        machine=machine,
        count=count,
        runs=len(runs),
        minutes=sum(run.result.seconds for run in runs) / 60,
        totals="\n".join(_totals(runs)),
        bounds="\n".join(_bounds(runs)),
        scenarios="\n".join(_rows(runs)),
        short="\n".join(short),
    )


def _totals(runs: Sequence[Run]) -> list[str]:
    rows = {"": list(BROKERS), "---": ["---:"] * len(BROKERS)}
    found = [of_broker(runs, broker) for broker in BROKERS]
    for name, label in SUMS.items():
        rows[label] = [f"{sum(getattr(each, name) for each in of):,}" for of in found]
    emptied = [max((each.emptied_s for each in of), default=0) for of in found]
    rows["longest until empty, s"] = [f"{each:.1f}" for each in emptied]
    for kind in ZERO:
        counts = (sum(len(each.violations.get(kind, [])) for each in of) for of in found)
        rows[f"**{kind.replace('_', ' ')}**"] = [str(count) for count in counts]
    invalid = [run.result.broker for run in runs if run.result.outcome == "INVALID"]
    rows["INVALID runs"] = [str(invalid.count(broker)) for broker in BROKERS]
    return [f"| {label} | {' | '.join(cells)} |" for label, cells in rows.items()]


def _bounds(runs: Sequence[Run]) -> list[str]:
    """Return each bound by the run that came nearest to it; what had to be 0, and was, together.

    What else was wrong in a trial is a bound of 0 there.
    """
    found: dict[tuple[str, str, float | None], list[tuple[bool, float, str, Bound]]] = {}
    for result in (run.result for run in runs if run.result.outcome != "INVALID"):
        name = f"{result.scenario}{result.size and f' of {result.size}'}, {result.broker}"
        wrong = [Bound(kind, len(ids), 0) for kind, ids in result.violations.items() if result.size]
        for each in (*wrong, *result.bounds):
            key = name if each.limit is None else "", SUBJECT.sub("", each.what), each.limit
            found.setdefault(key, []).append((not each.is_kept, each.found, name, each))
    lines, zero = ["| run | what | found | limit | |", "|---|---|---:|---:|---|"], []
    for (_, what, limit), of in found.items():
        _, most, name, each = max(of, key=itemgetter(0, 1))
        if most == limit == 0:
            zero.append(what)
        else:
            lines.append(f"| {name} | {what} | {' | '.join(each.words)} | {each.verdict} |")
    if zero:
        lines.append(f"| every run with these bounds | {'; '.join(zero)} | 0 | 0 | held |")
    return lines if found else ["**not run**"]


def _rows(runs: Sequence[Run]) -> list[str]:
    """Return a row for each scenario, of its brokers together; `_broken` has what did not hold."""
    lines = [
        "| scenario | faults | accepted | repeated | dead | seen |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for name, scenario in SCENARIOS.items():
        of = {broker: _of_scenario(runs, broker, name) for broker in scenario.brokers}
        found = list(chain.from_iterable(of.values()))
        numbers = ("effective", "accepted", "duplicates", "dead")
        sums = [f"{sum(getattr(each, number) for each in found):,}" for number in numbers]
        seen = next((s for each in found for s in each.seen), "")
        if missing := [broker for broker, results in of.items() if not results]:
            seen = f"**not run**: {', '.join(missing)}"
        label = name if len(of) == len(BROKERS) else f"{name}, {', '.join(of)}"
        lines.append(f"| {' | '.join([label, *sums, seen])} |")
    return lines


def _of_scenario(runs: Sequence[Run], broker: str, name: str) -> list[Result]:
    return [each for each in of_broker(runs, broker) if each.scenario == name]


def _broken(runs: Sequence[Run]) -> list[str]:
    broken = [
        f"**BROKEN**: round {run.round}, {run.result.scenario} on {run.result.broker}, seed"
        f" {run.result.seed}: {kind} {len(ids)}"
        for run in runs
        for kind, ids in run.result.violations.items()
    ]
    beyond = [
        f"**BROKEN**: {run.result.scenario} on {run.result.broker}: {each.what}: {each.words[0]}"
        for run in runs
        for each in run.result.bounds
        if not each.is_kept
    ]
    return broken + beyond


def shortfalls(results: Sequence[Result]) -> Iterator[str]:
    """Yield what the runs that count show to fall short of the goals R3 to R7."""
    skewed = sum(each.accepted for each in results if each.scenario.startswith("clocks_"))
    if skewed < MILLION:
        yield f"R3: {skewed:,} accepted while half of the clocks were wrong, the goal {MILLION:,}"
    for broker in BROKERS:
        those = [each for each in results if each.broker == broker]
        accepted, copies = sum(r.accepted for r in those), sum(r.duplicates for r in those)
        if copies > MOST_REPEATED * accepted:
            yield (
                f"R4: repeated on {broker} {copies / accepted:.2%} of {accepted:,} accepted, with"
                f" {sum(r.effective for r in those)} faults; the goal {MOST_REPEATED:.1%}"
            )
    for each in results:
        if each.emptied_s > EMPTIED_WITHIN_S:
            yield (
                f"R5: {each.scenario} on {each.broker}: empty {each.emptied_s} s after the traffic,"
                f" the goal {EMPTIED_WITHIN_S} s: a lease, the longest back-off, 10 s and the last"
                " due's 1.5 s"
            )
    stops = sum(each.effective for each in results if each.scenario in STOPS)
    if stops < RESTARTS:
        yield f"R7: {stops} orderly stops, the goal {RESTARTS}"
