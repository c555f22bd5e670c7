"""`tests/README.md`, and the pages below it, speak of tests, files and folders that there are."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

TESTS = ROOT / "tests"
PAGE = (TESTS / "README.md").read_text()
PAGES = sorted(TESTS.rglob("README.md"))
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.parent.relative_to(ROOT)))
def test_table_names_tests_and_files_that_there_are(page: Path) -> None:
    """A test, the beginning of one's name with three dots behind it, or a file with tests."""
    known = defined_tests() | {path.stem for path in TESTS.rglob("test_*.py")}
    rows = "\n".join(line for line in page.read_text().splitlines() if line.startswith("|"))
    for name in named_in(rows) - known:
        pytest.fail(f"{name}: no such test")
    for start in re.findall(r"`(test_\w+)\.\.\.`", rows):
        assert any(name.startswith(start) for name in known), start
    for file in re.findall(r"`([\w/]+\.py)`", rows):
        places = (ROOT / file, page.parent / file)
        assert any(path.is_file() for path in places), file


def test_every_row_names_a_test() -> None:
    rows = rows_of("Failures seen in the systems of this field")
    assert len(rows) == FIELD_FAILURES
    rows += rows_of("What is called otherwise here")
    assert [row for row in rows if not named_in(row)] == []


def test_every_folder_of_tests_has_a_row() -> None:
    folders = {path.parent.relative_to(TESTS).parts[0] for path in TESTS.glob("*/*.py")}
    assert {name for name in folders if f"| `{name}` |" not in PAGE} == set()
