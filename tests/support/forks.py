"""Runs the command in forks of one process that has its modules loaded: some 10 ms a command.

A fork is a process as any other: with its own environment, folder, standard streams and exit.
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

RUNNING = 1000  # no code that a process exits with
STREAMS = {"in": os.O_RDONLY, "out": os.O_WRONLY | os.O_CREAT, "err": os.O_WRONLY | os.O_CREAT}


class Forks:
    """One such process, started by the first command; it ends with this one."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(
        self, args: Sequence[str], stdin: bytes, cwd: Path, env: Mapping[str, str], within_s: float
    ) -> tuple[int, bytes, bytes]:
        """Return exit code, output and errors; raises `TimeoutExpired`, and kills the command."""
        with TemporaryDirectory() as name, self._lock:
            streams = Path(name)
            (streams / "in").write_bytes(stdin)
            code = self._answer([list(args), name, str(cwd), dict(env), True], within_s)
            return code, (streams / "out").read_bytes(), (streams / "err").read_bytes()

    def start(
        self, args: Sequence[str], streams: Path, cwd: Path, env: Mapping[str, str]
    ) -> "Fork":
        """Begin a command whose streams are files of this folder; the caller ends it."""
        streams.mkdir()
        for name in STREAMS:
            (streams / name).touch()
        with self._lock:
            return Fork(self, self._ask([list(args), str(streams), str(cwd), dict(env), False]))

    def code_of(self, pid: int) -> int | None:
        """Return the exit code of what was started, or None while it runs; ask no more then."""
        with self._lock:
            code = self._ask(pid)
        return None if code == RUNNING else code

    def _answer(self, request: object, within_s: float) -> int:
        pid = self._ask(request)
        killer = threading.Timer(within_s, _kill, [pid])
        killer.start()
        code = self._read()
        killer.cancel()
        if killer.finished.is_set() and code == -9:
            raise subprocess.TimeoutExpired(str(request), within_s)
        return code

    def _ask(self, request: object) -> int:
        server = self._server = self._server or self._start()
        assert server.stdin is not None
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        return self._read()

    def _read(self) -> int:
        assert self._server is not None
        assert self._server.stdout is not None
        return int(self._server.stdout.readline())

    def _start(self) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        root = str(Path(__file__).resolve().parents[2])
        command = [sys.executable, "-m", "tests.support.forks"]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=root)


class Fork:
    """A command that goes on: what tests use of `subprocess.Popen`."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self.pid = pid
        self._forks = forks
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self._forks.code_of(self.pid)
        return self._code

    def wait(self, within_s: float = 60.0) -> int:
        give_up_at = time.monotonic() + within_s
        while (code := self.poll()) is None:
            if time.monotonic() > give_up_at:
                raise subprocess.TimeoutExpired(f"process {self.pid}", within_s)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, 9)


def load() -> None:
    """Import all that a command may, but for what needs an extra."""
    import duebridge

    for module in pkgutil.walk_packages(duebridge.__path__, "duebridge."):
        with suppress(ImportError):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def serve() -> list[str]:
    """Fork for each request, or tell of a fork; a fork returns the words of its command."""
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if isinstance(request, int):
            _say(_code_of(request, os.WNOHANG))
            continue
        args, streams, cwd, env, is_awaited = request
        pid = os.fork()
        if pid == 0:
            become(Path(streams), cwd, env)
            return list(args)
        _say(pid)
        if is_awaited:
            _say(_code_of(pid))
    sys.exit()


def _code_of(pid: int, options: int = 0) -> int:
    found, status = os.waitpid(pid, options)
    return os.waitstatus_to_exitcode(status) if found else RUNNING


def _say(number: int) -> None:
    os.write(1, b"%d\n" % number)


def become(streams: Path, cwd: str, env: dict[str, str]) -> None:
    """Take over what a process is started with."""
    for number, (name, flags) in enumerate(STREAMS.items()):
        opened = os.open(streams / name, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        open(0, closefd=False),  # noqa: SIM115 - these stay open
        open(1, "w", closefd=False),  # noqa: SIM115
        open(2, "w", buffering=1, closefd=False, errors="backslashreplace"),  # noqa: SIM115
    )
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)


if __name__ == "__main__":
    load()
    gc.freeze()
    from duebridge.cli import main

    words = serve()
    sys.argv = [str(Path(sys.executable).with_name("duebridge")), *words]
    sys.exit(main())
