"""Detached processes: start one, know it again later, stop it, show the end of its log."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from state import Running, ServiceError

STOP_SECONDS = 30.0
POLL_SECONDS = 0.05
# Kept until this command ends: a Popen that is collected earlier warns about its running child.
_children: list[subprocess.Popen[bytes]] = []


def _stat_fields(pid: int) -> list[str] | None:
    """Return /proc/PID/stat after the command name, which may hold blanks and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()[:8]


def _start_time_by_ps(pid: int) -> str | None:
    """Do the same where there is no /proc (macOS, BSD)."""
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return shown[1].strip() if len(shown) == 2 and not shown[0].startswith("Z") else None


def start_time(pid: int) -> str | None:
    """Return what tells a process from a later one of the same pid; None when it is gone."""
    if not Path("/proc/self/stat").exists():
        return _start_time_by_ps(pid)
    fields = _stat_fields(pid)
    # A zombie has ended; in a container nobody may ever collect it.
    if fields is None or fields[0] in "ZX":
        return None
    return f"{_boot_id()}:{fields[19]}"


def is_alive(process: Running | None) -> bool:
    """Tell whether this very process still runs."""
    return process is not None and start_time(process.pid) == process.start_time


def spawn(
    name: str, command: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str] | None = None
) -> Running:
    """Start a process that survives this command and its terminal."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=dict(env) if env is not None else None,
            start_new_session=True,
        )
    _children.append(child)
    return Running(name, child.pid, start_time(child.pid) or "gone")


def run_logged(command: Sequence[str], *, log: Path, cwd: Path) -> None:
    """Run a preparing step to its end, its output in the service's log."""
    with log.open("ab") as output:
        code = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=cwd, check=False
        ).returncode
    if code != 0:
        raise ServiceError(f"{command[0]} ended with {code}\n{tail(log)}")


def wait_until(met: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition; False when it did not come in time."""
    deadline = time.monotonic() + seconds
    while not met():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _signal(process: Running, number: signal.Signals) -> None:
    """Send a signal to a process and its children, unless its pid is somebody else's by now."""
    if is_alive(process):
        # It leads a session of its own: nobody else is in its group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def end(processes: Sequence[Running], seconds: float = STOP_SECONDS) -> None:
    """Ask all to end, wait, and end those that do not the hard way."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    if not wait_until(lambda: not any(map(is_alive, processes)), seconds):
        for process in processes:
            _signal(process, signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, processes)), seconds)
    _children[:] = [child for child in _children if child.poll() is None]


def tail(log: Path, lines: int = 20) -> str:
    """Return the end of a log, and where the rest is."""
    try:
        with log.open("rb") as handle:
            handle.seek(max(0, log.stat().st_size - 64 * 1024))
            text = handle.read().decode("utf-8", "replace")
    except OSError:
        text = ""
    last = "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
    return f"{last}\n  log: {log}"
