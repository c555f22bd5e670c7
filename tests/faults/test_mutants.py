"""The seeded bugs: the code that each one changes is there."""

import shutil
from pathlib import Path

import pytest

from tests.faults.mutants import MUTANTS
from tests.support.checkout import ROOT


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_changes_code_that_is_there(tmp_path: Path, name: str) -> None:
    for folder in ("bridge", "connectors", "lua"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True)
    MUTANTS[name].edit.apply(tmp_path)
