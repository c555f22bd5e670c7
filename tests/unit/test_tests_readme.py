"""`tests/README.md` speaks of tests and folders that there are."""

import re
from pathlib import Path

from tests.conftest import ROOT

TESTS = ROOT / "tests"
PAGE = (TESTS / "README.md").read_text()
FIELD_FAILURES = 12


def rows_of(heading: str) -> list[str]:
    """The rows of the table under a heading, without its head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def named_in(text: str) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", text))


def defined_tests() -> set[str]:
    sources = [path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__)]
    return {name for text in sources for name in re.findall(r"^ *def (test_\w+)\(", text, re.M)}


def test_every_test_that_the_page_names_exists() -> None:
    assert named_in(PAGE) - defined_tests() == set()


def test_every_row_names_a_test() -> None:
    rows = rows_of("Failures seen in the systems of this field")
    assert len(rows) == FIELD_FAILURES
    rows += rows_of("What is called otherwise here")
    assert [row for row in rows if not named_in(row)] == []


def test_every_folder_of_tests_has_a_row() -> None:
    folders = {path.parent.relative_to(TESTS).parts[0] for path in TESTS.glob("*/*.py")}
    assert {name for name in folders if f"| `{name}` |" not in PAGE} == set()
