"""The seeded bugs: the code that each one changes is there."""

import pytest

from tests.faults.mutants import MUTANTS
from tests.support.checkout import ROOT


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_changes_code_that_is_there(name: str) -> None:
    path, text = MUTANTS[name].edit.changed(ROOT)
    assert text != path.read_text()
