"""Detached processes: start one, know it again later, stop it, show the end of its log."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from state import Place, Service

# Kept until this command ends: a Popen that is collected earlier warns about its running child.
_children: list[subprocess.Popen[bytes]] = []


def start_time(pid: int) -> str:
    """Return what tells a process from a later one of the same pid; nothing when it is gone."""
    try:
        # After the command's name, which may hold blanks and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
    # A zombie has ended; in a container nobody may ever collect it.
    return "" if fields[0] in "ZX" else f"{boot}:{fields[19]}"


def is_alive(service: Service) -> bool:
    """Tell whether this very process still runs."""
    return bool(service.pid) and start_time(service.pid) == service.start_time


def spawn(
    place: Place,
    name: str,
    port: int,
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
) -> Service:
    """Start a process that survives this command and its terminal."""
    data, log = place.data(name), place.log(name)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=data,
            env=env,
            start_new_session=True,
        )
    _children.append(child)
    started = start_time(child.pid) or "gone"
    return Service(name, port, log=str(log), data=str(data), pid=child.pid, start_time=started)


def wait_until(met: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition; False when it did not come in time."""
    deadline = time.monotonic() + seconds
    while not met():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def end(services: Sequence[Service], seconds: float = 30.0) -> None:
    """Terminate all with their children, wait, and kill those that remain."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for service in filter(is_alive, services):
            # It leads a session of its own: nobody else is in its group.
            with suppress(ProcessLookupError):
                os.killpg(service.pid, number)
        if wait_until(lambda: not any(map(is_alive, services)), seconds):
            break
    _children[:] = [child for child in _children if child.poll() is None]


def tail(log: Path, lines: int = 20) -> str:
    """Return the end of a log, and where the rest is."""
    text = log.read_text("utf-8", "replace") if log.exists() else ""
    last = "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
    return f"{last}\n  log: {log}"
