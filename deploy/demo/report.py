"""The audit's verdict as a table: a column per route, and one for all of them."""

from collections.abc import Callable, Mapping

from duebridge.audit import Verdict
from rich.box import SIMPLE_HEAD
from rich.table import Table

from timetable import TARGETS

ALL = "all"
HELD, BROKEN = 0, 1

ROWS: tuple[tuple[str, Callable[[Verdict], str]], ...] = (
    ("accepted", lambda verdict: str(verdict.accepted)),
    ("delivered", lambda verdict: str(verdict.delivered)),
    ("cancelled", lambda verdict: str(verdict.cancelled)),
    ("dead", lambda verdict: str(verdict.dead)),
    ("duplicate", lambda verdict: str(verdict.duplicate_copies)),
    ("early", lambda verdict: str(len(verdict.early))),
    ("lost", lambda verdict: str(len(verdict.lost))),
    ("after cancel", lambda verdict: str(len(verdict.after_cancel))),
    ("corrupt (body, key, header)", lambda verdict: str(len(verdict.corrupt))),
    ("unexpected", lambda verdict: str(len(verdict.unexpected))),
    ("stuck", lambda verdict: str(len(verdict.stuck))),
    ("lateness p50", lambda verdict: _lateness(verdict, 50)),
    ("lateness p99", lambda verdict: _lateness(verdict, 99)),
    ("lateness max", lambda verdict: _lateness(verdict, 100)),
)


def exit_code(verdicts: Mapping[str, Verdict]) -> int:
    """Return 1 where the guarantee was broken on any route, else 0."""
    return HELD if all(verdict.holds for verdict in verdicts.values()) else BROKEN


def verdict_table(verdicts: Mapping[str, Verdict]) -> Table:
    """Return the verdicts side by side."""
    table = Table(title="The verdict", box=SIMPLE_HEAD, title_style="bold", title_justify="left")
    table.add_column("")
    for name in verdicts:
        table.add_column(f"{name}\n{TARGETS.get(name, '')}", justify="right")
    for label, value in ROWS:
        table.add_row(label, *(value(verdict) for verdict in verdicts.values()))
    return table


def conclusion(verdicts: Mapping[str, Verdict]) -> str:
    """Return the verdict in a sentence, with a few ids of each kind of violation."""
    if exit_code(verdicts) == HELD:
        return "The guarantee held: nothing lost, nothing early, nothing after its cancel."
    kinds = ("lost", "early", "after_cancel", "unexpected", "corrupt", "stuck")
    found = {kind: getattr(verdicts[ALL], kind) for kind in kinds}
    told = "; ".join(f"{kind}: {', '.join(ids[:5])}" for kind, ids in found.items() if ids)
    return f"The guarantee was BROKEN: {told}"


def _lateness(verdict: Verdict, percent: float) -> str:
    if not verdict.lateness_ms:
        return "-"
    return f"{verdict.lateness_percentile_ms(percent)} ms"
