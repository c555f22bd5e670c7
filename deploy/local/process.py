"""Detached processes: start one, know it again later, ask whether it serves, stop it."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from state import Place, Service

# What a server is asked over a raw socket, and the bytes that its answer has at an offset.
PROBES = {
    # While it loads its file, Redis answers "-LOADING".
    "redis": (b"PING\r\n", 0, b"+PONG\r\n"),
    # The method connection.start of AMQP 0-9-1.
    "rabbitmq": (b"AMQP\0\0\x09\x01", 7, b"\0\x0a\0\x0a"),
    # ApiVersions, version 0, correlation id 7: the same id and no error.
    "kafka": (b"\0\0\0\x0b\0\x12\0\0\0\0\0\x07\0\x01d", 4, b"\0\0\0\x07\0\0"),
}


def answers(service: Service) -> bool:
    """Tell whether a server answers at this address in its own protocol."""
    request, offset, expected = PROBES[service.name]
    try:
        with socket.create_connection((service.host, service.port), timeout=2.0) as caller:
            caller.sendall(request)
            with caller.makefile("rb") as answer:
                return answer.read(offset + len(expected))[offset:] == expected
    except OSError:
        return False


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
    data, log = place.data(name), place.data("log") / f"{name}.log"
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


def tail(log: Path, lines: int = 20) -> str:
    """Return the end of a log, and where the rest is."""
    last = log.read_text("utf-8", "replace").splitlines()[-lines:]
    return "\n    ".join(["", *last, f"log: {log}"])
