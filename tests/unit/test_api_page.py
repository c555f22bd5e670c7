"""The page of the Python API is the one that the sources give."""

import subprocess
import sys

from tests.support.checkout import ROOT


def test_python_api_page_is_up_to_date() -> None:
    program = ROOT / "deploy" / "docs" / "api.py"
    assert subprocess.run([sys.executable, str(program), "--check"]).returncode == 0, "make api"
