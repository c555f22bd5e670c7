"""Rules about the sources that no linter has."""

import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

PRODUCT = sorted(
    path for part in ("bridge", "connectors", "deploy") for path in (ROOT / part).rglob("*.py")
)
MOST_LINES = 400
NO_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}


@pytest.mark.parametrize("path", PRODUCT, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_is_not_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_module_is_named_for_what_it_is() -> None:
    assert [path for path in PRODUCT if {path.stem, path.parent.name} & NO_NAMES] == []


def test_distribution_and_command_are_called_duebridge() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["name"], list(project["scripts"])) == ("duebridge", ["duebridge"])


def test_lock_file_has_hashes_and_names_no_package_index() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pins = [line for line in lock.splitlines() if "==" in line and not line.startswith((" ", "#"))]
    assert pins
    assert lock.count("--hash=sha256:") >= len(pins)
    assert [line for line in lock.splitlines() if "://" in line or "index-url" in line] == []
