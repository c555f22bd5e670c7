"""The seeded bugs: the code that each one changes is there."""

from tests.faults.edits import Stale
from tests.faults.mutants import MUTANTS
from tests.support.checkout import ROOT


def test_mutants_change_code_that_is_there() -> None:
    assert [name for name in MUTANTS if not _changes(name)] == []


def _changes(name: str) -> bool:
    try:
        path, text = MUTANTS[name].edit.changed(ROOT)
    except Stale:
        return False
    return text != path.read_text()
