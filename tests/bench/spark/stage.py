"""Where it is measured: a local session, and a Redis of its own that keeps what it is given."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import redis
from pyspark.sql import SparkSession

from duebridge_connectors.spark.session import opened_session
from tests.support.checkout import downloaded
from tests.support.servers import redis_server

CONFIG = """
version: 1
store: {{url: "redis://127.0.0.1:{port}"}}
brokers:
  here: {{type: kafka, bootstrap_servers: ["${{DUEBRIDGE_TEST_KAFKA_BOOTSTRAP:-localhost:9092}}"]}}
routes:
  bench: {{target: {{broker: here, topic: bench}}, shards: {shards}}}
  cold:
    target: {{broker: here, topic: bench}}
    shards: {shards}
    cold_tier: {{path: "{home}/cold", horizon: 1h}}
"""
# A rewrite of the log takes one core of two for seconds, in some rounds and in others not.
STORE = ("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
# As two cores want them: a task that calls the store waits for it half of its time.
PARALLEL = {"spark.master": "local[4]", "spark.sql.shuffle.partitions": "8"}
SCRIPT_CALLS = ("evalsha", "evalsha_ro", "eval", "eval_ro")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    """Seconds of a clock, and of CPU by who used it; of several readings what is between them."""

    wall: float
    jvm: float
    python: float
    scripts: float
    store: float

    def since(self, before: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


class Figures(NamedTuple):
    """What a job took: rows a second, and the CPU of a row in us, by who used it."""

    rows: int
    rate: float
    jvm: float
    python: float
    scripts: float
    rest: float

    @staticmethod
    def of(rows: int, spent: Spent) -> "Figures":
        scripts = min(spent.scripts, spent.store)  # by a clock, which runs on beside other work
        used = (spent.jvm, spent.python, scripts, spent.store - scripts)
        return Figures(rows, rows / spent.wall, *(1e6 * seconds / rows for seconds in used))

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows, {self.rate:,.0f} a second; CPU a row, us: Java {self.jvm:.1f},"
            f" Python {self.python:.1f}, the store's scripts {self.scripts:.1f},"
            f" its rest {self.rest:.1f}"
        )


class Stage(NamedTuple):
    """What a job needs."""

    spark: SparkSession
    client: Any
    config: str

    @property
    def home(self) -> Path:
        return Path(self.config).parent

    def measured(self, rows: int, job: Callable[[], object]) -> Figures:
        """Run a job of so many rows."""
        before = self._spent()
        job()
        return Figures.of(rows, self._spent().since(before))

    def _spent(self) -> Spent:
        """Return the clock, and the CPU of Java, of our Python and of the store."""
        cpu, calls = self.client.info("cpu"), self.client.info("commandstats")
        scripts = [calls.get(f"cmdstat_{name}", {"usec": 0}) for name in SCRIPT_CALLS]
        used = tree_cpu_s(os.getpid())
        java = sum(seconds for name, seconds in used.items() if name == "java")
        store = float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])
        ran = sum(each["usec"] for each in scripts) / 1e6
        return Spent(time.monotonic(), java, sum(used.values()) - java, ran, store)


@contextmanager
def opened_stage(home: Path, shards: int) -> Iterator[Stage]:
    """Give a stage whose store is empty."""
    with redis_server(home, *STORE) as port, redis.Redis(port=port) as client:
        config = home / "duebridge.yaml"
        config.write_text(CONFIG.format(port=port, shards=shards, home=home))
        more = {**PARALLEL, "spark.jars": downloaded("spark")}
        with opened_session("bench", more=more) as spark:
            yield Stage(spark, client, str(config))


def tree_cpu_s(root: int) -> dict[str, float]:
    """Return by program the CPU time of a process and all below it, but for the store's."""
    children: dict[int, list[int]] = {}
    used: dict[int, tuple[str, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile, and is in its parent's sum
            name, _, rest = path.read_text().rpartition(")")
            fields, pid = rest.split(), int(path.parent.name)
            name = name.partition("(")[2]
            if name != "redis-server":
                children.setdefault(int(fields[1]), []).append(pid)
                used[pid] = name, sum(map(int, fields[11:15]))  # with children that have ended
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    ticks: dict[str, float] = {}
    for name, own in (used[pid] for pid in found):
        ticks[name] = ticks.get(name, 0) + own / TICKS_A_SECOND
    return ticks
