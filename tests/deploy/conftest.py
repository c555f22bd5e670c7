"""Helm, fetched once, and Prometheus' promtool."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.chart import Chart
from tests.support.checkout import downloaded, missing

Promtool = Callable[..., str]


@pytest.fixture(scope="session")
def chart() -> Chart:
    return Chart(f"{downloaded('helm')}/helm")


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    """Return a function that runs promtool, and fails with what it prints."""
    program = shutil.which("promtool") or missing("promtool", "run `make tools`")

    def run(*args: str | Path) -> str:
        done = subprocess.run([program, *args], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
