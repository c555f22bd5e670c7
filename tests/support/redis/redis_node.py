"""A redis-server of a test's own, alone or of a set, which the test kills, freezes and starts."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.checkout import missing
from tests.support.servers import AT_ONCE, free_port, listens, wait_until

HOST = os.environ.get("DUEBRIDGE_K8S_HOST", "127.0.0.1")  # where a cluster's pods reach us
ADDRESSES = dict.fromkeys((HOST, "127.0.0.1"))
PATIENCE_S = 2.0  # for a server that may be frozen


class RedisNode:
    """A redis-server: killed, frozen and started again by the test."""

    def __init__(self, home: Path, port: int, words: Sequence[str], password: str = "") -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home, self.port, self.password = home, port, password
        self._words = [shutil.which("redis-server") or missing("redis-server", "install Redis 7")]
        self._words += [*words, "--port", str(port), "--bind", *ADDRESSES, "--dir", str(home)]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of its first database, without a login."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it (again, with what its directory holds) and wait until it listens."""
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._words, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(lambda: listens(self.port), f"redis-server, see {self.home}/server.log")

    def kill(self) -> None:
        """Kill it (SIGKILL), frozen or not; harmless where it does not run."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def freeze(self) -> None:
        """Stop it as a hung machine stops: it takes connections and says nothing (SIGSTOP)."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen one go on (SIGCONT)."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze it, and let it go on at the end of the block."""
        self.freeze()
        try:
            yield
        finally:
            self.resume()

    def ask(self, *command: str | int | bytes) -> Any:
        """Send one command on a connection of its own; raises what redis-py raises."""
        with self.client() as client:
            return client.execute_command(*command)

    def client(self) -> Any:
        """Return a client that waits for `PATIENCE_S`, repeats nothing, and is soon connected."""
        how: dict[str, Any] = {
            "socket_timeout": PATIENCE_S,
            "retry": Retry(NoBackoff(), 0),
            "driver_info": None,
        }
        return redis.Redis(port=self.port, password=self.password or None, **how)

    def role(self) -> str:
        """Return `master` or `slave` by its own word, or an empty text if it does not answer."""
        try:
            return str(self.ask("ROLE")[0].decode())
        except redis.RedisError:
            return ""

    def online(self) -> int:
        """Return how many replicas follow, up to date but for the lag."""
        return sum("online" in str(each) for each in self.ask("INFO", "replication").values())


def server(home: Path, *options: str, password: str = "") -> RedisNode:
    """Return a server that is not started yet; nothing is persisted unless options say so."""
    words = ["--save", "", "--appendonly", "no", *AT_ONCE, *options]
    if password:
        words += ["--requirepass", password, "--masterauth", password]
    return RedisNode(home, free_port(), words, password)
