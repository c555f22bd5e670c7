"""A copied tree's tests are about the code of that copy, wherever else it is installed."""

from importlib.resources import files
from pathlib import Path

import bridge
import connectors
import lua
from tests.conftest import ROOT


def test_import_takes_the_tree_that_the_tests_are_of() -> None:
    for package in (bridge, connectors, lua):
        assert Path(package.__file__ or "").is_relative_to(ROOT), package
    assert Path(str(files("lua"))) == ROOT / "lua"
