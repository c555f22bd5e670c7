"""The checkout that the tests are of: where it is, a copy of it, and what it lacks."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]


def missing(service: str, remedy: str) -> NoReturn:
    """Skip for want of a service, with the remedy; in CI it fails, where nothing may be missing."""
    message = f"{service} is missing: {remedy}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def downloaded(name: str) -> str:
    """Return what deploy/local/downloads.py prints for a name; without it, see `missing`."""
    program = [sys.executable, str(ROOT / "deploy" / "local" / "downloads.py"), name]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    return missing(name, done.stderr) if done.returncode else done.stdout.strip()


def ask(checkout: Path, program: str) -> Any:
    """Return the `answer` of a program that uses the modules of a checkout's deploy/local."""
    whole = f"import json, sys\nsys.path.insert(0, 'deploy/local')\n{program}\n"
    command = [sys.executable, "-c", f"{whole}print(json.dumps(answer))"]
    return json.loads(subprocess.run(command, cwd=checkout, capture_output=True, check=True).stdout)


def copy_tree(target: Path) -> None:
    """Copy the files that git tracks or would; the local services stay the checkout's own."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (source := ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    if (ROOT / ".services").exists():
        (target / ".services").symlink_to(ROOT / ".services")


def environment(tree: Path) -> dict[str, str]:
    """Return variables with which the packages of a tree come before those of the checkout."""
    roots = {tree, *(found.parent.parent for found in tree.glob("*/duebridge*/__init__.py"))}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots)), "CI": "1"}
