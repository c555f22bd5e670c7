"""Meters work: time, CPU of this process, CPU and script calls of the store."""

import itertools
import resource
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from duebridge.config.durability import Replicated
from duebridge.store.server.connection import Argument, Connection, Reply
from duebridge.store.server.errors import translated_errors
from duebridge.store.server.scripts import Script

FREED_EVERY_S = 0.05  # the server frees unlinked keys in the background


class CallCounter:
    """Counts the script calls of our own connections: others may use the same server."""

    def __init__(self) -> None:
        self.count = 0
        self._counter = itertools.count(1)

    def add(self) -> None:
        """Count one call; thread-safe."""
        self.count = next(self._counter)


class CountedConnection(Connection):
    """A connection that counts its script calls."""

    def __init__(self, connection: Connection, calls: CallCounter) -> None:
        super().__init__(connection.client)
        self._calls = calls

    def run(
        self,
        called: Script,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        repeat_for_s: float = 0.0,
        wanted: Replicated | None = None,
    ) -> Reply:
        """Count one call, and run it."""
        self._calls.add()
        return super().run(called, keys, arguments, repeat_for_s, wanted)


class MeterReading(NamedTuple):
    """The counters at one moment, or the difference of two moments."""

    seconds: float
    worker_cpu_s: float
    store_cpu_s: float
    calls: float
    all_calls: float

    def since(self, before: "MeterReading") -> "MeterReading":
        """Return the difference to an earlier reading."""
        return MeterReading(*(now - then for now, then in zip(self, before, strict=True)))

    def figures(self, count: int) -> dict[str, float]:
        """Return the figures per message.

        `others_calls` counts the script calls of other clients of the server: their CPU is part of
        the store's, which is of these messages alone only if this is 0.
        """
        return {
            "worker_cpu_us": self.worker_cpu_s * 1e6 / count,
            "store_cpu_us": self.store_cpu_s * 1e6 / count,
            "store_calls": self.calls / count,
            "others_calls": self.all_calls - self.calls,
        }


class Meter:
    """Reads the counters of this process, of the store's server, and of our calls to it."""

    def __init__(self, connection: Connection, calls: CallCounter) -> None:
        self._client: Any = connection.client
        self._calls = calls

    def read(self) -> MeterReading:
        """Return the current counters."""
        with translated_errors():
            cpu = self._client.info("cpu")
            stats = self._client.info("commandstats")
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return MeterReading(
            time.perf_counter(),
            usage.ru_utime + usage.ru_stime,
            cpu["used_cpu_user"] + cpu["used_cpu_sys"],
            self._calls.count,
            stats.get("cmdstat_evalsha", {}).get("calls", 0),
        )

    def script_us(self) -> int:
        """Return the server's total time in scripts, in microseconds."""
        with translated_errors():
            stats = self._client.info("commandstats")
        return int(stats.get("cmdstat_evalsha", {}).get("usec", 0))

    def dataset_bytes(self) -> int:
        """Return the memory of the keys, without the server's own."""
        with translated_errors():
            while (info := self._client.info("memory"))["lazyfree_pending_objects"]:
                time.sleep(FREED_EVERY_S)
        return int(info["used_memory_dataset"])

    def clock_offset_ms(self) -> tuple[float, float]:
        """Return the store's clock minus this machine's, and its uncertainty, in ms."""
        best = (0.0, float("inf"))
        for _ in range(50):
            started = time.time()
            with translated_errors():
                seconds, micros = self._client.time()
            ended = time.time()
            if ended - started < best[1]:
                best = (seconds + micros / 1e6 - (started + ended) / 2, ended - started)
        return best[0] * 1000, best[1] * 1000
