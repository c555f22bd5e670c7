"""`make services-up`: starts a service once, restarts a dead one, and leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkout import ROOT
from tests.support.servers import wait_until

pytestmark = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="redis-server is not installed"
)

Services = Callable[..., tuple[int, str]]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    """Runs the program, in a checkout of its own, on Redis alone; stopped at the end."""
    shutil.copytree(ROOT / "deploy" / "local", tmp_path / "deploy" / "local")

    def run(command: str, owner: str = "") -> tuple[int, str]:
        words = [sys.executable, "deploy/local/services.py", command, "--only", "redis"]
        words += ["--owner", owner]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    yield run
    run("down")


def entry(home: Path) -> dict[str, Any]:
    return dict(json.loads((home / ".services" / "services.json").read_text("utf-8"))["redis"])


def test_up_and_down_of_redis_starts_once_restarts_what_died_and_leaves_nothing(
    services: Services, tmp_path: Path
) -> None:
    assert "started" in services("up")[1]
    first = entry(tmp_path)
    assert "already running" in services("up")[1]
    assert entry(tmp_path) == first
    os.kill(first["pid"], signal.SIGKILL)
    wait_until(lambda: not is_alive(first["pid"]), "the end of redis-server")
    assert services("status")[0] == 1
    assert "started" in services("up")[1]
    second = entry(tmp_path)
    assert services("env") == (0, f"export DUEBRIDGE_TEST_REDIS_URL={first['url']}\n")
    assert "stopped" in services("down")[1]
    assert not is_alive(second["pid"])


def test_down_of_an_owner_stops_only_what_it_alone_asked_for(services: Services) -> None:
    services("up", "demo")
    assert "left alone" in services("down", "other")[1]
    assert "stopped" in services("down", "demo")[1]
    services("up", "demo")
    assert "already running" in services("up")[1]
    assert "left alone" in services("down", "demo")[1]
    assert services("status")[0] == 0
