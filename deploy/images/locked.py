"""The part of requirements.lock that an image needs, with its hashes.

Only the standard library, as a Dockerfile runs it before anything is installed:
`python3 deploy/images/locked.py worker`.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# What is in each image, by extras of pyproject.toml; and what builds them.
EXTRAS = {
    "worker": ("kafka", "librdkafka", "otel", "rabbitmq"),
    "spark": ("kafka", "spark"),
}
TOOLS = "images"


class Pin(NamedTuple):
    """One package of the lock file: its lines as they stand there, and who wants it."""

    name: str
    requirement: str
    hashes: tuple[str, ...]
    wanted_by: frozenset[str]

    def __str__(self) -> str:
        return " \\\n    ".join([self.requirement, *self.hashes])


def pins(lock: str) -> list[Pin]:
    """Return every pin of a lock file as uv writes it: a line, its hashes, `# via` who wants it."""
    return [_pin(entry) for entry in re.split(r"^(?=\w)", lock, flags=re.MULTILINE)[1:]]


def _pin(entry: str) -> Pin:
    requirement = entry.partition("\n")[0].removesuffix(" \\")
    found = re.findall(r"^ {4}#(?: via| {2}) ([\w.-]+)", entry, re.MULTILINE)
    hashes = tuple(re.findall(r"--hash=\S+", entry))
    return Pin(_name(requirement), requirement, hashes, frozenset(found))


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def direct(project: dict[str, object], image: str) -> set[str]:
    """Return the names that pyproject.toml itself asks for."""
    extras: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    if image == TOOLS:
        return {_name(each) for each in extras[TOOLS]}
    asked: list[str] = list(project["dependencies"])  # type: ignore[call-overload]
    for extra in EXTRAS[image]:
        asked += extras[extra]
    return {_name(each) for each in asked} - {str(project["name"])}


def needed(image: str, lock: str, project: dict[str, object]) -> list[Pin]:
    """Return what an image needs of a lock file: the direct ones, and all that these bring."""
    every, wanted = pins(lock), direct(project, image)
    if missing := wanted - {pin.name for pin in every}:
        raise SystemExit(f"requirements.lock: expected {', '.join(sorted(missing))}; run make lock")
    while more := {pin.name for pin in every if pin.wanted_by & wanted} - wanted:
        wanted |= more
    return [pin for pin in every if pin.name in wanted]


def of_image(image: str) -> list[Pin]:
    """Return what an image, or `images` for the tools that build it, needs of this checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return needed(image, (ROOT / "requirements.lock").read_text("utf-8"), project)


if __name__ == "__main__":
    sys.stdout.writelines(f"{pin}\n" for pin in of_image(sys.argv[1]))
