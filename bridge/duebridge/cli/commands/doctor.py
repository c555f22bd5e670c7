"""`duebridge doctor`: finds what keeps envelopes from being delivered, and says what to do."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from duebridge.cli.exits import BROKER, DONE, NO, STORE, USAGE
from duebridge.cli.output import (
    STDOUT,
    Output,
    OutputOption,
    is_terminal,
    printable,
    write,
    write_json,
    write_table,
)
from duebridge.cli.session import ConfigOption, named_config, opened_store
from duebridge.errors import ConfigError, StoreError
from duebridge.ports.checks import Finding, FindingSubject, Severity, failure, ok

if TYPE_CHECKING:
    from duebridge.admin.checks.doctor import Check
    from duebridge.config.models import Config

COLUMNS = ("", "place", "found", "what to do")

# In the order in which they decide the exit code.
_CODES = {
    FindingSubject.CONFIG: USAGE,
    FindingSubject.STORE: STORE,
    FindingSubject.BROKER: BROKER,
    FindingSubject.ROUTE: NO,
}


def doctor(
    context: typer.Context, output: OutputOption = Output.TABLE, config: ConfigOption = None
) -> None:
    """Find everything that keeps envelopes from being delivered, and say what to do.

    It examines the configuration, the packages it needs, the store and its routes, whether workers
    listen, and every broker and target. It changes and sends nothing. Warnings exit 0. If several
    things fail, the exit code is 2 for the configuration or a missing package, else 3 for the
    store, else 4 for a broker, else 1.
    """
    from duebridge.admin.checks.doctor import DOCTOR_CHECKS

    path = named_config(context, config)
    settings, findings = _load(path)
    if settings is not None:
        findings += examine(settings, DOCTOR_CHECKS)
    conclude(findings, output)


def examine(config: "Config", checks: "Sequence[Check]") -> Iterator[Finding]:
    """Yield the findings of these checks of the store, then those of the brokers in use."""
    from duebridge.admin.checks.broker_checks import examine_brokers

    yield from _examine_store(config, checks)
    yield from examine_brokers(config)


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
    """Return 0 if nothing failed; else 2 before 3, before 4, before 1."""
    failed = {finding.about for finding in findings if finding.severity is Severity.FAILURE}
    return next((code for about, code in _CODES.items() if about in failed), DONE)


def _examine_store(config: "Config", checks: "Sequence[Check]") -> list[Finding]:
    from duebridge.admin.checks.doctor import check_store
    from duebridge.admin.checks.store_checks import store_failure

    try:
        with opened_store(config) as connection:
            return list(check_store(config, connection, checks))
    except ConfigError as error:
        text = str(error).removeprefix("store.url: ")
        return [failure(FindingSubject.CONFIG, "store.url", text, "fix it")]
    except StoreError as error:
        return [store_failure(error)]


def _load(path: Path) -> "tuple[Config | None, list[Finding]]":
    from duebridge.config.load import load_config

    try:
        config = load_config(path)
    except ConfigError as error:
        return None, [_mistake(path, line) for line in str(error).splitlines()]
    counts = f"routes: {len(config.routes)}, brokers: {len(config.brokers)}"
    return config, [ok(FindingSubject.CONFIG, str(path), counts)]


def _mistake(path: Path, line: str) -> Finding:
    if not path.exists():
        remedy = "write one (the README has a short one), or name it with --config"
        return failure(FindingSubject.CONFIG, str(path), "there is no such file", remedy)
    place, _, text = line.partition(" ")
    return failure(FindingSubject.CONFIG, place.rstrip(":"), text, "fix it there")


def _show(found: list[Finding]) -> None:
    """Write a table on a terminal, else a line each: remedies are too long for columns."""
    if is_terminal(STDOUT):
        write_table(COLUMNS, [_row(finding) for finding in found])
        return
    for finding in found:
        remedy = f" -- {finding.remedy}" if finding.remedy else ""
        write(printable(f"{finding.severity:<7}  {finding.place}: {finding.found}{remedy}"))


def _row(finding: Finding) -> tuple[str, ...]:
    return (finding.severity, finding.place, finding.found, finding.remedy or "-")


def _summary(found: list[Finding]) -> str:
    counts = Counter(finding.severity for finding in found)
    return ", ".join(f"{severity}: {counts[severity]}" for severity in reversed(Severity))
