"""Where it is measured: a local session, and a Redis of its own that keeps what it is given."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import redis
from pyspark.sql import SparkSession

from duebridge_connectors.spark.session import opened_session
from tests.support.checkout import ROOT
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
COLD_ROUTE = "cold"
FEW_PARTS = {"spark.sql.shuffle.partitions": "8"}  # as two cores want them
BROKER = "here"
CONNECTOR = ROOT / "deploy" / "local" / "spark_jars.py"
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Round(NamedTuple):
    """One round: so many rows, and what they took."""

    rows: int
    seconds: float
    cpu_s: float
    store_cpu_s: float
    driver_mib: float
    java_mib: float

    def __str__(self) -> str:
        """Return one line."""
        million = 1e6 / self.rows
        return (
            f"{self.rows:,} rows, {self.rows / self.seconds:,.0f} a second; CPU a row, us:"
            f" Spark {self.cpu_s * million:.1f}, store {self.store_cpu_s * million:.1f};"
            f" most memory, MiB: driver {self.driver_mib:.0f}, its JVM {self.java_mib:.0f}"
        )


class Stage(NamedTuple):
    """What a program needs."""

    spark: SparkSession
    client: Any
    config: str

    @contextmanager
    def watched(self, found: list[Round], rows: int) -> Iterator[None]:
        """Add to `found` what the block took."""
        cpu_s, store_s, began = tree_cpu_s(os.getpid()), self._store_cpu_s(), time.monotonic()
        yield
        seconds = time.monotonic() - began
        used_s = tree_cpu_s(os.getpid()) - cpu_s
        peaks = peak_mib(os.getpid()), peak_mib(_java_pid())
        found.append(Round(rows, seconds, used_s, self._store_cpu_s() - store_s, *peaks))

    def _store_cpu_s(self) -> float:
        info = self.client.info("cpu")
        return float(info["used_cpu_user"] + info["used_cpu_sys"])


@contextmanager
def opened_stage(home: Path, shards: int) -> Iterator[Stage]:
    """Give a stage whose store is empty."""
    with redis_server(home, "--appendonly", "yes") as port, redis.Redis(port=port) as client:
        config = home / "duebridge.yaml"
        config.write_text(CONFIG.format(port=port, shards=shards, home=home))
        jars = subprocess.check_output([sys.executable, CONNECTOR], text=True).strip()
        with opened_session("bench", more={**FEW_PARTS, "spark.jars": jars}) as spark:
            yield Stage(spark, client, str(config))


def peak_mib(pid: int) -> float:
    """Return the most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _java_pid() -> int:
    """Return the JVM of this driver, which has the tasks too where the session is local."""
    found = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return next(int(each) for each in found if "java" in Path(f"/proc/{each}/stat").read_text())


def tree_cpu_s(pid: int) -> float:
    """Return the CPU time of a process and all below it, but for the store's."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        threads = Path(f"/proc/{pid}/task").iterdir()
        children += [
            child for each in threads if each.name != str(pid) for child in _children(each)
        ]
    except OSError:  # it has ended meanwhile, and is in its parent's sum
        return 0.0
    if "redis-server" in name:
        return 0.0
    own = sum(map(int, rest.split()[11:15])) / TICKS_A_SECOND  # with children that have ended
    return own + sum(tree_cpu_s(int(child)) for child in children)


def _children(thread: Path) -> list[str]:
    try:
        return (thread / "children").read_text().split()
    except OSError:
        return []
