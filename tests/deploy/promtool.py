"""Prometheus' own programs, or a skip that says how to get them (in CI: a failure)."""

import shutil
import subprocess
from pathlib import Path

from tests.conftest import missing


def program(name: str) -> str:
    """Return the path of `promtool` or `prometheus`."""
    return shutil.which(name) or missing(name, "run `make tools`")


def promtool(*args: str | Path) -> str:
    """Run promtool; fails with what it says."""
    done = subprocess.run([program("promtool"), *args], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
