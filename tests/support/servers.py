"""Real servers for the tests of the delay store, snapshots of one, and ports without any."""

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import redis

from tests.support.checkout import missing

STARTED_WITHIN_S = 30.0
IS_BESIDE_OTHERS = "PYTEST_XDIST_WORKER" in os.environ  # which take the cores for seconds
COMPILES_ONCE = "-XX:TieredStopAtLevel=1"  # of a Java that lives for seconds: it starts sooner


def wait_until(
    is_true: Callable[[], object],
    what: object,
    within_s: float = STARTED_WITHIN_S,
    every_s: float = 0.01,
) -> None:
    """Return once it is true; fails the test at the deadline, and says `what` as it is then."""
    give_up_at = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < give_up_at, f"gave up waiting for {what}"
        time.sleep(every_s)


# Below those of deploy/local, whose servers take theirs again after a kill, and those that a system
# gives to outgoing connections.
PORTS = range(10_000, 20_000)
_given: set[int] = set()


def free_port() -> int:
    """Return a free port, none twice; the workers of one run of tests draw from parts of their own.

    Servers of a set ask for a dozen before the first one listens.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    part = PORTS[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    for _ in range(100):
        port = random.choice(part)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
    raise AssertionError("no free port")


def is_alive(pid: int) -> bool:
    """Whether a process runs still; a zombie does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def loopbacks() -> list[str]:
    """Return this machine's own address, and that of IPv6 where it has one."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return ["127.0.0.1"]
    return ["127.0.0.1", "::1"]


@contextmanager
def redis_server(home: Path, *options: str) -> Iterator[int]:
    """Run a redis-server of our own, with nothing persisted, and give its port."""
    program = shutil.which("redis-server") or missing("redis-server", "install Redis 7")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home)]
    command += ["--save", "", "--appendonly", "no", *options]
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(lambda: listens(port), f"redis-server, see {home}/server.log")
        yield port
    finally:
        server.kill()
        server.wait()


def listens(port: int) -> bool:
    """Tell whether anybody takes a connection."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def redis_cluster(home: Path) -> Iterator[str]:
    """Run a Cluster of one node that owns every slot, and give its URL."""
    with redis_server(home, *of_a_cluster()) as port:
        take_every_slot(port)
        yield f"redis+cluster://127.0.0.1:{port}"


def of_a_cluster() -> list[str]:
    """Return the options of a server that may be a node of a Cluster."""
    return ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]


def take_every_slot(port: int) -> None:
    """Make a server a Cluster of one node, and return once it is ok."""
    with redis.Redis(port=port) as node:
        node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)

        def is_ok() -> bool:
            return node.execute_command("CLUSTER INFO")["cluster_state"] == "ok"

        wait_until(is_ok, "the Cluster to be ok", every_s=0.05)


AT_ONCE = ("--repl-diskless-sync-delay", "0")  # a copy waits five seconds for others to join


def back_up(port: int, file: Path) -> None:
    program = shutil.which("redis-cli") or missing("redis-cli", "install Redis 7")
    words = [program, "-u", f"redis://127.0.0.1:{port}", "--rdb", str(file)]
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def restored(file: Path, home: Path) -> Iterator[int]:
    """A server that began with a snapshot, and has an append-only file since; gives its port."""
    home.mkdir()
    shutil.copy(file, home / "backup.rdb")
    with redis_server(home, "--dbfilename", "backup.rdb") as port, redis.Redis(port=port) as client:
        client.config_set("appendonly", "yes")

        def is_written() -> bool:
            info = client.info("persistence")
            is_idle = not (info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"])
            return bool(info["aof_enabled"]) and is_idle

        wait_until(is_written, "the append-only file", within_s=60)
        yield port


@contextmanager
def silent_listener() -> Iterator[int]:
    """Give a port that takes connections and never says a word.

    Nobody has to accept: the kernel completes the handshake of what is in the backlog.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield int(server.getsockname()[1])
