"""The guides show the programs that the tests here run."""

import subprocess
import sys

from tests.support.checkout import ROOT


def test_blocks_of_the_guides_are_the_examples_lines() -> None:
    program = ROOT / "deploy" / "docs" / "guides.py"
    told = subprocess.run(
        [sys.executable, str(program), "--check"], capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (0, "")
