"""Findings as a command prints them, and the exit code that they end it with."""

from collections import Counter
from collections.abc import Iterable

import typer

from duebridge.cli.exits import BROKER, DONE, NO, STORE, USAGE
from duebridge.cli.output import (
    STDOUT,
    Output,
    is_terminal,
    printable,
    write,
    write_json,
    write_table,
)
from duebridge.ports.checks import About, Finding, Severity

COLUMNS = ("", "place", "found", "what to do")

# In this order: what stops most comes first.
_CODES = {About.CONFIG: USAGE, About.STORE: STORE, About.BROKER: BROKER, About.ROUTE: NO}


def conclude(findings: Iterable[Finding], output: Output) -> None:
    """Print all findings, and end the command with their exit code."""
    found = list(findings)
    if output is Output.JSON:
        for finding in found:
            write_json(finding)
    else:
        _show(found)
        write(_summary(found))
    raise typer.Exit(exit_code_of(found))


def exit_code_of(findings: Iterable[Finding]) -> int:
    """Return 0 where nothing failed; else 2 before 3, before 4, before 1."""
    failed = {each.about for each in findings if each.severity is Severity.FAILURE}
    return next((code for about, code in _CODES.items() if about in failed), DONE)


def _show(found: list[Finding]) -> None:
    """Write a table on a terminal, else a line each: columns as wide as remedies help nobody."""
    if is_terminal(STDOUT):
        write_table(COLUMNS, [_row(finding) for finding in found])
        return
    for each in found:
        remedy = f" -- {each.remedy}" if each.remedy else ""
        write(printable(f"{each.severity:<7}  {each.place}: {each.found}{remedy}"))


def _row(finding: Finding) -> tuple[str, ...]:
    return (finding.severity, finding.place, finding.found, finding.remedy or "-")


def _summary(found: list[Finding]) -> str:
    counts = Counter(finding.severity for finding in found)
    return ", ".join(f"{severity}: {counts[severity]}" for severity in reversed(Severity))
