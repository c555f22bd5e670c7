"""Known vulnerabilities of the locked packages, by pip-audit.

pip-audit exits 1 both for a vulnerability and for a service that does not answer, and 0 where it
skipped every package. So its report decides, and its words only where there is no report.
"""

import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deploy.supply.locked import Pin

PATIENCE_S = 600
# How the last lines of pip-audit begin when the service, not pip-audit, is at fault.
SERVICE_ERRORS = (
    "requests.exceptions.",
    "pip_audit._service.interface.ServiceError",
    "ERROR:pip_audit._cli:Could not connect to",
)


class AuditFailed(Exception):
    """pip-audit ended without a report, and not for want of an answer."""


@dataclass(frozen=True)
class Audit:
    """Each vulnerability found, `package version: id`; packages not checked, with the reason."""

    found: tuple[str, ...]
    unchecked: dict[str, str]


def audit(pins: Sequence[Pin], accepted: Collection[str], url: str) -> Audit:
    """Ask the OSV service at the URL about every pin, those of other platforms too.

    Raise AuditFailed if pip-audit itself failed.
    """
    parts = [ask(part, accepted, url) for part in split(pins)]
    found = tuple(each for part in parts for each in part.found)
    return Audit(found, {pin: why for part in parts for pin, why in part.unchecked.items()})


def split(pins: Sequence[Pin]) -> Iterator[list[Pin]]:
    """Yield the pins, each name once a list: pip-audit refuses two versions of one."""
    left = list(pins)
    while left:
        part = list({pin.name: pin for pin in left}.values())
        yield part
        left = [pin for pin in left if pin not in part]


def ask(pins: Sequence[Pin], accepted: Collection[str], url: str) -> Audit:
    """Ask about pins of different names."""
    with TemporaryDirectory() as folder:
        asked, report = Path(folder, "asked.txt"), Path(folder, "report.json")
        asked.write_text("".join(f"{pin.title}\n" for pin in pins))
        words = ["--no-deps", "--disable-pip", f"--requirement={asked}", "--progress-spinner=off"]
        words += ["--vulnerability-service=osv", f"--osv-url={url}", "--timeout=10"]
        words += ["--format=json", f"--output={report}"]
        said = run([*words, *(f"--ignore-vuln={each}" for each in accepted)])
        if report.exists():
            return judge(json.loads(report.read_text()), pins)
    return Audit((), dict.fromkeys((pin.title for pin in pins), unanswered(said)))


def run(words: list[str]) -> str:
    """Run pip-audit; return what it said."""
    command = [sys.executable, "-m", "pip_audit", *words]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return f"{SERVICE_ERRORS[0]}Timeout: no end after {PATIENCE_S} s"
    return ended.stderr


def unanswered(said: str) -> str:
    """Return why the service did not answer."""
    for line in said.splitlines():
        if line.startswith(SERVICE_ERRORS):
            return line[:200]
    raise AuditFailed(said.strip() or "pip-audit wrote no report")


def judge(report: dict[str, Any], pins: Sequence[Pin]) -> Audit:
    """Return what a report says of the pins; a pin that it lacks is not checked."""
    told = {(each["name"], each.get("version")): each for each in report["dependencies"]}
    unchecked = {}
    for pin in pins:
        each = told.get((pin.name, pin.version)) or told.get((pin.name, None), {})
        if "vulns" not in each:
            unchecked[pin.title] = each.get("skip_reason", "not in the report")
    found = [
        f"{name} {version}: {vulnerability['id']}"
        for (name, version), each in told.items()
        for vulnerability in each.get("vulns", ())
    ]
    return Audit(tuple(found), unchecked)
