"""`make services-up`: starts a service once, restarts a dead one, and leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkout import ROOT
from tests.support.servers import wait_until

pytestmark = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="redis-server is not installed"
)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_up_and_down_of_redis_starts_once_restarts_what_died_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    shutil.copytree(ROOT / "deploy" / "local", tmp_path / "deploy" / "local")

    def services(command: str) -> tuple[int, str]:
        words = [sys.executable, "deploy/local/services.py", command, "--only", "redis"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def redis() -> dict[str, Any]:
        found = json.loads((tmp_path / ".services" / "services.json").read_text("utf-8"))
        return dict(found["redis"])

    try:
        assert "started" in services("up")[1]
        first = redis()
        assert "already running" in services("up")[1]
        assert redis() == first
        os.kill(first["pid"], signal.SIGKILL)
        wait_until(lambda: not is_alive(first["pid"]), "the end of redis-server")
        assert services("status")[0] == 1
        assert "started" in services("up")[1]
        second = redis()
        assert services("env") == (0, f"export DUEBRIDGE_TEST_REDIS_URL={first['url']}\n")
    finally:
        assert "stopped" in services("down")[1]
    assert not is_alive(second["pid"])
