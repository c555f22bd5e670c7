"""Helm, fetched once by whoever comes first."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT, missing
from tests.deploy.chart import Chart


@pytest.fixture(scope="session")
def chart() -> Chart:
    fetch = [sys.executable, str(ROOT / "deploy" / "local" / "helm_tools.py")]
    done = subprocess.run(fetch, capture_output=True, text=True, check=False)
    if done.returncode:
        missing("helm", done.stderr.strip())
    return Chart(f"{done.stdout.strip()}/helm")
