"""A server whose machine loses its power: its append-only file loses what was not on disk."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.checkout import missing
from tests.support.redis.redis_node import RedisNode
from tests.support.servers import free_port, wait_until

SHIM = Path(__file__).with_name("synced.c")
SYNC_US = 5000  # of a disk slower than this machine's: a sync is under way most of the time


class PoweredNode(RedisNode):
    """A server that notes what it has synced (`synced.c`)."""

    def __init__(self, home: Path, options: Sequence[str]) -> None:
        super().__init__(home, free_port(), ["--save", "", "--appendonly", "yes", *options])
        self._notes = home / "synced"
        self._notes.mkdir()
        noting = (f"LD_PRELOAD={_shim(home)}", f"SYNCED={self._notes}", f"SYNC_US={SYNC_US}")
        self._words = ["env", *noting, *self._words]

    def start(self) -> None:
        super().start()
        wait_until(self.role, f"redis-server, see {self.home}/server.log")

    def cut_power(self) -> int:
        """Kill it while it writes, cut off what was not on disk, and return the bytes of that."""

        def is_writing() -> bool:
            self.freeze()
            is_writing = self._unsynced() > 0
            if not is_writing:
                self.resume()
            return is_writing

        wait_until(is_writing, "a write that is not on disk")
        self.kill()
        lost = self._unsynced()
        for file in self._files():
            os.truncate(file, self._synced(file))
        return lost

    def _unsynced(self) -> int:
        return sum(each.stat().st_size - self._synced(each) for each in self._files())

    def _files(self) -> list[Path]:
        return list((self.home / "appendonlydir").glob("*.incr.aof"))

    def _synced(self, file: Path) -> int:
        note = self._notes / str(file.stat().st_ino)
        return int(note.read_text()) if note.exists() else 0


def _shim(home: Path) -> Path:
    compiler = shutil.which("cc") or missing("a C compiler", "install gcc")
    library = home / "synced.so"
    words = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library)]
    subprocess.run([*words, str(SHIM), "-ldl"], check=True)
    return library


@contextmanager
def powered(home: Path, *options: str) -> Iterator[PoweredNode]:
    """Run one."""
    node = PoweredNode(home, options)
    try:
        node.start()
        yield node
    finally:
        node.kill()
