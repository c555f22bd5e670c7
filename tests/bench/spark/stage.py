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
FEW_PARTS = {"spark.sql.shuffle.partitions": "8"}  # as two cores want them
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Stage(NamedTuple):
    """What a job needs."""

    spark: SparkSession
    client: Any
    config: str

    @property
    def home(self) -> Path:
        return Path(self.config).parent

    def measured(self, rows: int, job: Callable[[], None]) -> str:
        """Run a job of so many rows; return a line that says what it took."""
        before, began = self._cpu_s(), time.monotonic()
        job()
        seconds = time.monotonic() - began
        spark_us, store_us = (
            1e6 * (now - then) / rows for now, then in zip(self._cpu_s(), before, strict=True)
        )
        return (
            f"{rows:,} rows, {rows / seconds:,.0f} a second;"
            f" CPU a row, us: Spark {spark_us:.1f}, store {store_us:.1f}"
        )

    def _cpu_s(self) -> tuple[float, float]:
        """Return the CPU time of Spark's processes, and of the store."""
        info = self.client.info("cpu")
        return tree_cpu_s(os.getpid()), float(info["used_cpu_user"] + info["used_cpu_sys"])


@contextmanager
def opened_stage(home: Path, shards: int) -> Iterator[Stage]:
    """Give a stage whose store is empty."""
    with redis_server(home, "--appendonly", "yes") as port, redis.Redis(port=port) as client:
        config = home / "duebridge.yaml"
        config.write_text(CONFIG.format(port=port, shards=shards, home=home))
        more = {**FEW_PARTS, "spark.jars": downloaded("spark")}
        with opened_session("bench", more=more) as spark:
            yield Stage(spark, client, str(config))


def tree_cpu_s(root: int) -> float:
    """Return the CPU time of a process and all below it, but for the store's."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile, and is in its parent's sum
            name, _, rest = path.read_text().rpartition(")")
            fields, pid = rest.split(), int(path.parent.name)
            if "redis-server" not in name:
                children.setdefault(int(fields[1]), []).append(pid)
                ticks[pid] = sum(map(int, fields[11:15]))  # with children that have ended
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return sum(ticks[pid] for pid in found) / TICKS_A_SECOND
