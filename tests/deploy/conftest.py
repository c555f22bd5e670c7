"""Helm, fetched once, and Prometheus' promtool."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.chart import Chart
from tests.support.checkout import ROOT, missing

Promtool = Callable[..., str]


@pytest.fixture(scope="session")
def chart() -> Chart:
    fetch = [sys.executable, str(ROOT / "deploy" / "local" / "helm_tools.py")]
    done = subprocess.run(fetch, capture_output=True, text=True, check=False)
    if done.returncode:
        missing("helm", done.stderr.strip())
    return Chart(f"{done.stdout.strip()}/helm")


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    """Return a function that runs promtool, and fails with what it prints."""
    program = shutil.which("promtool") or missing("promtool", "run `make tools`")

    def run(*args: str | Path) -> str:
        done = subprocess.run([program, *args], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
