"""An embedded server that died is started again by who has it open, and by nobody else."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from structlog.testing import capture_logs

from duebridge.errors import StoreUnavailable
from duebridge.store.server import embedded
from duebridge.store.server.connection import Connection
from duebridge.store.server.embedded import locked, socket_path, start_embedded, stop_embedded
from duebridge.store.server.opening import greet_master
from duebridge.store.server.revival import REVIVE_EVERY_S, Reviver, RevivingConnection
from tests.store.server.embedded_home import NOBODY, as_root, kill, pid_of, pids_in
from tests.support.checkout import ROOT
from tests.support.desk import Desk
from tests.support.servers import wait_until

START_AGAIN_S = 20.0
GARBAGE = b"no append-only file\n"


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_embedded_that_was_killed_is_started_again_by_who_has_it_open(
    open_at: Callable[..., Connection], home: Path
) -> None:
    both = [patient_desk(open_at(f"embedded:{home}"), START_AGAIN_S) for _ in range(2)]
    both[0].pending("a")
    pid = pid_of(home)
    kill(pid)
    assert [desk.store.next().pending for desk in both] == [1, 1]
    assert pid_of(home) != pid
    assert pids_in(home) == [pid_of(home)]


def patient_desk(connection: Connection, patience_s: float) -> Desk:
    return Desk(connection, "embedded", repeat_for_s=patience_s)


def test_embedded_that_was_stopped_is_not_started_by_who_has_it_open(
    open_at: Callable[..., Connection], home: Path
) -> None:
    desk = patient_desk(open_at(f"embedded:{home}"), 2 * REVIVE_EVERY_S)
    stop_embedded(home)
    with pytest.raises(StoreUnavailable):
        desk.store.next()
    assert pids_in(home) == []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reviver(home: Path, clock: Clock) -> Iterator[Reviver]:
    """Of a server that died and cannot read its append-only file back."""
    start_embedded(home)
    with redis.Redis(unix_socket_path=str(socket_path(home))) as client:
        client.set("a", "b")
        client.config_set("appendfsync", "always")
    end(home)
    for each in files(home):
        each.write_bytes(GARBAGE + each.read_bytes())
    yield Reviver(home, clock)
    wait_until(lambda: is_over(home) or is_up(home), "the last server")


def files(home: Path) -> list[Path]:
    return list((home / "appendonlydir").glob("*.incr.aof"))


def mend(home: Path) -> None:
    for each in files(home):
        each.write_bytes(each.read_bytes().removeprefix(GARBAGE))


def is_over(home: Path) -> bool:
    with locked(home) as lock:
        return lock is not None


def is_up(home: Path) -> bool:
    with redis.Redis(unix_socket_path=str(socket_path(home))) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False


def end(home: Path) -> None:
    """Kill the server; its main thread may be gone, and another still have the lock."""
    kill(pid_of(home))
    wait_until(lambda: is_over(home), "the server to end")


def starts(home: Path) -> int:
    """How often a server was started in a directory."""
    return (home / "server.log").read_text(errors="replace").count("is starting")


def zombies() -> int:
    lines = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            lines.append(each.read_text(errors="replace"))
        except OSError:
            continue
    return sum(f") Z {os.getpid()} " in line for line in lines)


def connect(home: Path, reviver: Reviver) -> None:
    """Open a connection, and close it."""
    connection = RevivingConnection(
        path=str(socket_path(home)), reviver=reviver, redis_connect_func=greet_master
    )
    try:
        connection.connect()
    finally:
        connection.disconnect()


def test_server_that_cannot_start_is_started_ever_more_rarely(
    home: Path, clock: Clock, reviver: Reviver
) -> None:
    before, tried_at = starts(home), []
    for clock.now_s in range(200):
        reviver()
        wait_until(lambda: is_over(home), "the server to end")
        tried_at += [clock.now_s] * (starts(home) - before - len(tried_at))
    assert tried_at == [0, 1, 3, 7, 15, 31, 63, 123, 183]


def test_server_that_cannot_start_leaves_no_zombies(
    home: Path, clock: Clock, reviver: Reviver
) -> None:
    before = zombies()
    for number in range(5):
        clock.now_s = 100.0 * number
        reviver()
        wait_until(lambda: is_over(home), "the server to end")
    assert zombies() <= before + 2, "the last, and one that was about to end"


def test_server_that_cannot_start_is_told_of_once_and_by_every_error(
    home: Path, clock: Clock, reviver: Reviver
) -> None:
    with capture_logs() as logs:
        for number in range(4):
            clock.now_s = 100.0 * number
            with pytest.raises(redis.ConnectionError) as refused:
                connect(home, reviver)
            assert (f"see {home}/server.log" in str(refused.value)) is (number > 0)
            wait_until(lambda: is_over(home), "the server to end")
    (told,) = logs
    assert (told["event"], told["log_level"]) == ("embedded_server_down", "warning")
    assert f"{home}/server.log" in told["error"]


def test_server_that_starts_at_last_is_started_again_as_soon_as_ever(
    home: Path, clock: Clock, reviver: Reviver
) -> None:
    for clock.now_s in (0.0, 1.0, 3.0, 7.0, 15.0):
        reviver()
        wait_until(lambda: is_over(home), "the server to end")
    mend(home)
    clock.now_s = 31.0
    reviver()
    wait_until(lambda: is_up(home), "the server")
    connect(home, reviver)
    end(home)
    clock.now_s += REVIVE_EVERY_S
    reviver()
    wait_until(lambda: is_up(home), "the server")
    assert not reviver.fault


def test_server_without_a_program_is_told_of(
    home: Path, clock: Clock, reviver: Reviver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "server_program", lambda: str(home / "no-program"))
    with pytest.raises(redis.ConnectionError, match=r"cannot be started: .*no-program"):
        connect(home, reviver)


def test_server_that_cannot_start_is_started_by_one_thread_of_many(
    home: Path, clock: Clock, reviver: Reviver
) -> None:
    before, zombies_before = starts(home), zombies()
    with ThreadPoolExecutor(8) as threads:
        for number in range(5):
            clock.now_s = 100.0 * number
            for done in [threads.submit(reviver) for _ in range(8)]:
                done.result()
            wait_until(lambda: is_over(home), "the server to end")
    assert starts(home) == before + 5
    assert zombies() <= zombies_before + 2


AS_OWNER = """
import os, sys
from duebridge.store.server.embedded import start_embedded

os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
start_embedded(sys.argv[1])
"""


def test_server_of_another_user_is_left_to_its_owner(open_at: Callable[..., Connection]) -> None:
    as_root()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place).resolve()
        os.chown(home, NOBODY, NOBODY)
        start_as_owner(home)
        client = open_at(f"embedded:{home}").client
        assert client.ping()
        end(home)
        for _ in range(3):
            with pytest.raises(redis.ConnectionError):
                client.ping()
        assert is_over(home), "a server of this user's has the lock"
        start_as_owner(home)
        assert client.ping()
        assert socket_path(home).stat().st_uid == NOBODY
        stop_embedded(home)


def start_as_owner(home: Path) -> None:
    subprocess.run([sys.executable, "-c", AS_OWNER, str(home), str(NOBODY)], cwd=ROOT, check=True)


def test_server_of_this_user_in_a_directory_of_another_is_started_again(
    open_at: Callable[..., Connection],
) -> None:
    as_root()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place).resolve()
        os.chown(home, NOBODY, NOBODY)
        client = open_at(f"embedded:{home}").client
        assert client.ping()
        end(home)
        with pytest.raises(redis.ConnectionError):
            client.ping()
        wait_until(lambda: is_up(home), "the server")
        stop_embedded(home)


FORKED = """
import os, sys
from duebridge.store.server import embedded
from duebridge.store.server.revival import Reviver
from tests.store.server.embedded_home import pid_of
from tests.store.server.test_revival import end, is_up, wait_until
from pathlib import Path

home = Path(sys.argv[1])
embedded.start_embedded(home)
end(home)
now = [0.0]
reviver = Reviver(home, lambda: now[0])
reviver()
wait_until(lambda: is_up(home), "the server")
first = pid_of(home)
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0, "the forked process failed"
    reviver.answered()
    embedded._reap()
    try:
        os.waitpid(first, os.WNOHANG)
    except ChildProcessError:
        print("reaped")
else:
    end(home)
    now[0] = 100.0
    reviver()
    wait_until(lambda: is_up(home), "the server")
    os._exit(pid_of(home) == first)
"""


def test_server_is_started_again_by_a_forked_process(home: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(home)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("reaped", "")
    assert pids_in(home) == [pid_of(home)]
