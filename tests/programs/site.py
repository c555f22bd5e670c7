"""A copy of one example's folder, and the processes of a test in it."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from select import select

from tests.support.command import PROGRAM

WITHIN_S = 60
LINE_WITHIN_S = 240  # of a program that compiles first, on a busy machine


class Running:
    """A process; its output is read line by line, its errors go to a file."""

    def __init__(self, command: list[str], home: Path, env: Mapping[str, str], log: Path) -> None:
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command, cwd=home, env=env, stdout=subprocess.PIPE, stderr=errors
            )
        self._log = log
        self._unread = b""

    def line(self, *beginnings: str) -> str:
        """Return its next line, or the next that begins so; fails without one, or at its end."""
        until_s = time.monotonic() + LINE_WITHIN_S
        while True:
            line, end, rest = self._unread.partition(b"\n")
            if not end:
                self._unread += self._output(until_s)
                continue
            self._unread = rest
            if not beginnings or line.decode().startswith(beginnings):
                return line.decode()

    def _output(self, until_s: float) -> bytes:
        """Return more of the output, once there is; fails with what all processes wrote."""
        assert self.process.stdout is not None
        ready, _, _ = select([self.process.stdout], [], [], max(0, until_s - time.monotonic()))
        output = os.read(self.process.stdout.fileno(), 65536) if ready else b""
        if not output:
            logs = sorted(self._log.parent.glob("*.log"))
            wrote = "\n".join(f"{log.name}:\n{log.read_text()}" for log in logs)
            what = "it ended" if ready else f"no line within {LINE_WITHIN_S} s"
            raise AssertionError(f"{self.process.args!r}: {what}; {self._unread!r}\n{wrote}")
        return output

    def stop(self) -> None:
        """Stop it as an init system does."""
        self.process.terminate()
        self.process.communicate(timeout=WITHIN_S)


class Site:
    """Runs programs in `home` until the test's end, with the settings of its services."""

    def __init__(self, home: Path, settings: Mapping[str, str], until: ExitStack) -> None:
        self.home = home
        self._env = {**os.environ, **settings}
        self._until = until
        self._logs = 0

    def start(self, command: list[str]) -> Running:
        """Start a program; it is stopped at the end."""
        self._logs += 1
        started = Running(command, self.home, self._env, self.home / f"{self._logs}.log")
        self._until.callback(started.stop)
        return started

    def call(self, command: list[str]) -> str:
        """Run a program to its end, which has to be a good one; returns its output."""
        done = self.run(command)
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def run(self, command: list[str]) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end, whatever that is."""
        return subprocess.run(
            command,
            cwd=self.home,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def duebridge(self, *words: str) -> str:
        """Run a command of duebridge."""
        return self.call([PROGRAM, *words])

    def worker(self, *options: str) -> Running:
        """Start `duebridge run`: lanes and intakes."""
        return self.start([PROGRAM, *options, "run"])


Open = Callable[..., Site]
