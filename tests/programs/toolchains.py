"""How the programs of each language are built and started, with their own language's tools.

What the tools download they keep where they keep it for their user: Maven in ~/.m2, Go in its
module cache, npm in its cache. So only the first run asks the network.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.support.checkout import missing

BUILT_WITHIN_S = 500
# Go compiles sooner where it need not make its programs fast, nor fit for a debugger.
UNTUNED = ("-gcflags=all=-N -l", "-ldflags=-s -w")


def tool(name: str, remedy: str) -> str:
    """Return a program's path; without it, see `missing`."""
    return shutil.which(name) or missing(name, remedy)


def _build(folder: Path, *command: str) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=BUILT_WITHIN_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"


def python(folder: Path, program: str) -> list[str]:
    """Return the command that runs a script."""
    return [sys.executable, "-u", str(folder / program)]


def node(folder: Path, program: str) -> list[str]:
    """Install what package.json names; return the command that runs a script."""
    runtime, npm = tool("node", "install Node.js 18"), tool("npm", "install npm")
    if not (folder / "node_modules").exists():
        flags = ("--no-package-lock", "--no-audit", "--no-fund", "--prefer-offline")
        _build(folder, npm, "install", *flags)
    return [runtime, str(folder / program)]


def go(folder: Path, program: str) -> list[str]:
    """Build the package that a file is in; return its command."""
    source = Path(program)
    binary = folder / "bin" / "-".join(source.with_suffix("").parts)
    compiler = tool("go", "install Go 1.26")
    _build(folder, compiler, "build", *UNTUNED, "-o", str(binary), f"./{source.parent}")
    return [str(binary)]


def java(folder: Path, program: str) -> list[str]:
    """Fetch the jars that pom.xml lists; return the command that compiles and runs a file."""
    runtime, maven = tool("java", "install Java 17"), tool("mvn", "install Maven")
    libraries = folder / "libs"
    if not libraries.exists():
        command = (maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime")
        _build(folder, *command, f"-DoutputDirectory={libraries}")
    return [runtime, "-cp", f"{libraries}/*", str(folder / program)]


class Language(NamedTuple):
    """One program in one language: where it lies among the examples, and how it is built."""

    name: str
    command: Callable[[Path, str], list[str]]
    file: str


REMINDERS = {
    "pika": Language("python", python, "reminders.py"),
    "amqplib": Language("node", node, "reminders.js"),
    "amqp091-go": Language("go", go, "reminders.go"),
    "amqp-client": Language("java", java, "Reminders.java"),
}
