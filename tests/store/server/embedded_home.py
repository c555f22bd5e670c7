"""The directory of an embedded server: its processes, and how they end."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.support.servers import is_alive, wait_until

NOBODY = 65534


def pid_of(home: Path) -> int:
    return int((home / "server.pid").read_text())


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "the server to be gone")


def pids_in(home: Path) -> list[int]:
    """The processes that work in a directory."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(each / "cwd") == str(home):
                found.append(int(each.name))
    return found


def as_root() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can act as another user")
