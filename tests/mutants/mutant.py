"""A seeded bug: a patch that names the test which must catch it, tried in a copy of the tree."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Self

from tests.conftest import ROOT

HERE = Path(__file__).resolve().parent
COPIED = ("bridge", "connectors", "lua", "tests", "pyproject.toml")
WITHIN_S = 60
MARK = "# caught by: "
_RESULT = re.compile(r"^(tests/.+?) (PASSED|FAILED|ERROR|SKIPPED)\b", re.MULTILINE)


class Stale(Exception):
    """A patch whose lines are not those of the tree any more."""


class Mutant(NamedTuple):
    """One patch: its file, the test that its first line names, the bug that its second tells."""

    path: Path
    test: str
    bug: str

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the mutant of a patch file, with nothing for what its head does not say."""
        first, second, *_ = [*path.read_text().splitlines(), "", ""]
        test = first.removeprefix(MARK) if first.startswith(MARK) else ""
        return cls(path, test, second.removeprefix("# ") if second.startswith("# ") else "")

    def apply(self, tree: Path) -> None:
        """Put the bug into a tree; raises `Stale` where the lines that it changes are others."""
        # In a repository above the tree, git would pass over files that are not its own.
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
        command = ["git", "apply", "--recount", str(self.path)]
        applied = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
        if applied.returncode:
            refresh = "put the bug into the tree by hand, and `git diff` below the two first lines"
            raise Stale(f"{self.path.name} does not apply ({self.bug}): {applied.stderr}{refresh}")


class Run(NamedTuple):
    """What pytest said: a word for each test that it ran, and all that it wrote."""

    results: dict[str, str]
    output: str


def copy_tree(source: Path, target: Path, *, with_bytecode: bool) -> Path:
    """Copy what tests need; the local services are the checkout's own."""
    unwanted = shutil.ignore_patterns(*([] if with_bytecode else ["__pycache__"]), "*.patch")
    target.mkdir()
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=unwanted)
        else:
            shutil.copy2(source / name, target / name)
    if (ROOT / ".services").exists():
        (target / ".services").symlink_to(ROOT / ".services")
    return target


def run_tests(tree: Path, tests: list[str]) -> Run:
    """Run tests of a tree upon the code of that tree."""
    command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "--color=no"]
    command += ["-pno:cacheprovider", "-ppytest_timeout", "-o", f"timeout={WITHIN_S}", *tests]
    # To look for plugins costs as much as all the rest of a short run.
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command,
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * WITHIN_S,
    )
    output = done.stdout + done.stderr
    return Run(first_words(output), output)


def can_collect(tree: Path, test: str) -> bool:
    """Whether pytest finds one test of exactly this name."""
    return bool(test) and "1 test collected" in run_tests(tree, ["--collect-only", test]).output


def first_words(output: str) -> dict[str, str]:
    """What pytest's lines say of each test; of two lines the first, which is the test's own."""
    results: dict[str, str] = {}
    for test, word in _RESULT.findall(output):
        results.setdefault(test, word)
    return results


def complaint(mutant: Mutant, before: Run, after: Run) -> str:
    """Why a mutant does not count as caught; nothing where it does."""
    name, test = mutant.path.name, mutant.test
    if test not in before.results:
        return f"{name}: pytest cannot collect {test}; mend it, or name another in the first line"
    if before.results[test] != "PASSED":
        return f"{name}: {test} does not pass without the patch:\n{before.output}"
    match after.results.get(test):
        case "FAILED":
            return ""
        case "PASSED":
            return f"{name} survives ({mutant.bug}): {test} passes with it; let a test catch it"
        case _:
            return f"{name}: with the patch {test} neither passes nor fails:\n{after.output}"
