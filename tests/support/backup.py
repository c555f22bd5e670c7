"""A snapshot of a Redis, and a server that begins with it."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.support.checkout import missing
from tests.support.command import wait_until
from tests.support.servers import redis_server

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

        wait_until(is_written, "the append-only file")
        yield port
