"""Meters work: time, CPU of this process, CPU and script calls of the store."""

import resource
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from duebridge.config.durability import ReplicaWait
from duebridge.store.server.connection import Argument, Connection, Reply
from duebridge.store.server.errors import translated_errors
from duebridge.store.server.fitness import Info, read_info
from duebridge.store.server.scripts import Script

FREED_EVERY_S = 0.05  # the server frees unlinked keys in the background


ANY_KEY = "duebridge"  # names one server of a Cluster


class CallCounter:
    """Counts the script calls of our own connections: others may use the same server."""

    def __init__(self) -> None:
        self.count = 0
        self._running = 0
        self._turn = threading.Condition()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the call that runs inside; thread-safe."""
        with self._turn:
            self.count += 1
            self._running += 1
        try:
            yield
        finally:
            with self._turn:
                self._running -= 1
                self._turn.notify_all()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for the calls that run, and keep others waiting: the server has counted them all."""
        with self._turn:
            self._turn.wait_for(lambda: self._running == 0)
            yield


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
        wanted: ReplicaWait | None = None,
    ) -> Reply:
        """Count one call, and run it."""
        with self._calls.counted():
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

    def figures_at_speed(self, count: int) -> dict[str, float]:
        """Return the throughput, then the figures per message."""
        return {"messages_per_s": count / self.seconds, **self.figures(count)}


class Meter:
    """Reads the counters of this process, of the store's servers, and of our calls to them."""

    def __init__(self, connection: Connection, calls: CallCounter) -> None:
        self._connection = connection
        self._calls = calls

    def read(self) -> MeterReading:
        """Return the current counters."""
        with self._calls.paused(), translated_errors():
            nodes, calls = read_info(self._connection, "cpu", "commandstats"), self._calls.count
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return MeterReading(
            time.perf_counter(),
            usage.ru_utime + usage.ru_stime,
            sum(node["used_cpu_user"] + node["used_cpu_sys"] for node in nodes),
            calls,
            _of_evalsha(nodes, "calls"),
        )

    def script_us(self) -> int:
        """Return the servers' total time in scripts, in microseconds."""
        with translated_errors():
            return _of_evalsha(read_info(self._connection, "commandstats"), "usec")

    def dataset_bytes(self) -> int:
        """Return the memory of the keys, without the server's own."""
        with translated_errors():
            nodes = read_info(self._connection, "memory")
            while any(node["lazyfree_pending_objects"] for node in nodes):
                time.sleep(FREED_EVERY_S)
                nodes = read_info(self._connection, "memory")
        return sum(int(node["used_memory_dataset"]) for node in nodes)

    def clock_offset_ms(self) -> tuple[float, float]:
        """Return the store's clock minus this machine's, and its uncertainty, in ms."""
        best = (0.0, float("inf"))
        for _ in range(50):
            started = time.time()
            with translated_errors():
                seconds, micros = self._connection.server_of(ANY_KEY).time()
            ended = time.time()
            if ended - started < best[1]:
                best = (seconds + micros / 1e6 - (started + ended) / 2, ended - started)
        return best[0] * 1000, best[1] * 1000


def _of_evalsha(nodes: Sequence[Info], counter: str) -> int:
    return sum(int(node.get("cmdstat_evalsha", {}).get(counter, 0)) for node in nodes)
