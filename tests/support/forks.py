"""Runs the command in forks of one process that has its modules loaded: some 10 ms a command.

A fork is a process as any other: with its own environment, folder, standard streams and exit.
"""

import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

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
            code = self._ask([list(args), name, str(cwd), dict(env)], within_s)
            return code, (streams / "out").read_bytes(), (streams / "err").read_bytes()

    def _ask(self, request: object, within_s: float) -> int:
        server = self._server = self._server or self._start()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        pid = int(server.stdout.readline())
        killer = threading.Timer(within_s, _kill, [pid])
        killer.start()
        answer = server.stdout.readline()
        killer.cancel()
        if killer.finished.is_set() and int(answer) == -9:
            raise subprocess.TimeoutExpired(str(request), within_s)
        return int(answer)

    def _start(self) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        root = str(Path(__file__).resolve().parents[2])
        command = [sys.executable, "-m", "tests.support.forks"]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=root)


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
    """Fork for each request; a fork returns the words of its command."""
    for line in sys.stdin.buffer:
        args, streams, cwd, env = json.loads(line)
        pid = os.fork()
        if pid == 0:
            become(Path(streams), cwd, env)
            return list(args)
        _say(pid)
        _, status = os.waitpid(pid, 0)
        _say(os.waitstatus_to_exitcode(status))
    sys.exit()


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
