"""One Spark session for all tests, paid once; each test has a namespace of its own."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from duebridge.config.load import load_config
from duebridge.producer import Producer
from duebridge.store.connection import Connection, open_connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.transitions import RememberedId
from tests.spark.commander import Commander
from tests.support.checkout import ROOT, missing

LATER_MS = 1_000 * int((datetime.now(UTC) + timedelta(days=30)).timestamp())
CONFIG = """
version: 1
store: {{url: "{url}", namespace: {namespace}}}
brokers:
  kafka: {{type: kafka, bootstrap_servers: ["{bootstrap}"]}}
  rabbit: {{type: rabbitmq, url: "amqp://localhost/"}}
routes:
  plain: {{target: {{broker: kafka, topic: plain}}, max_body: 1KiB, max_delay: 365d}}
  split: {{target: {{broker: kafka, topic: split}}, shards: 4}}
  amqp: {{target: {{broker: rabbit, exchange: "", routing_key: amqp}}}}
  cold:
    target: {{broker: kafka, topic: cold}}
    shards: 2
    cold_tier: {{path: "{home}/cold", horizon: 7d}}
  frozen:
    target: {{broker: kafka, topic: frozen}}
    cold_tier: {{path: "{home}/cold", horizon: 7d}}
  open:
    target: {{broker: kafka, topic: open}}
    allow_targets: [{{broker: kafka, topic: "open-*"}}]
"""


@pytest.fixture(scope="session")
def kafka_jars() -> str:
    """Spark's Kafka connector, as the setting `spark.jars` takes it."""
    program = [sys.executable, str(ROOT / "deploy" / "local" / "spark_jars.py")]
    done = subprocess.run(program, capture_output=True, text=True)
    return done.stdout.strip() if not done.returncode else missing("the connector", done.stderr)


@pytest.fixture(scope="session")
def spark(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session that tries a task four times, as a cluster does."""
    if shutil.which("java") is None:
        missing("java", "install OpenJDK 17, such as openjdk-17-jre-headless")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.jars", kafka_jars)
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def command(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commander]:
    """`duebridge` as a person runs it, but that Java is started once."""
    commander = Commander(tmp_path_factory.mktemp("commands"), kafka_jars)
    yield commander
    commander.close()


class World:
    """A configuration with a namespace of its own, and what the store has in it."""

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
        self.url = url
        self.namespace = f"spark-{secrets.token_hex(6)}"
        self.config = str(home / "duebridge.yaml")
        self.connection: Connection = open_connection(url)
        self.use(url)

    def use(self, url: str, bootstrap: str = "localhost:9092") -> None:
        """Reach the store by this url from now on, and Kafka by these servers."""
        text = CONFIG.format(url=url, namespace=self.namespace, home=self.home, bootstrap=bootstrap)
        Path(self.config).write_text(text)

    def options(self, route: str, **more: object) -> dict[str, Any]:
        return {"config": self.config, "route": route, **more}

    def store(self, route: str, number: int = 0, **options: Any) -> DelayStore:
        return DelayStore(self.connection, Shard(self.namespace, route, number), **options)

    def producer(self) -> Producer:
        return Producer(load_config(self.config), self.connection)

    def ids(self, route: str, state: str = "pending", number: int = 0) -> set[str]:
        """The ids of a shard's state, at most 100,000."""
        key = f"{Shard(self.namespace, route, number).tag}:{state}"
        client: Any = self.connection.client
        return {name.decode() for name in client.zrange(key, 0, 100_000)}

    def deliver(self, route: str, count: int) -> set[str]:
        """Deliver what is due, as a worker would, and return its ids."""
        store = self.store(route)
        store.promote()
        claim = store.claim(count, 30_000)
        kept = [
            RememberedId(place, each.record.remember_ms, each.record.content_hash)
            for place, each in enumerate(claim.leased)
            if each.record.remember_ms
        ]
        assert store.ack(claim.token, claim.ids, kept).stale == []
        return set(claim.ids)

    def delete(self) -> None:
        client: Any = self.connection.client
        for key in client.scan_iter(f"{{{self.namespace}*", count=1000):
            client.delete(key)
        self.connection.close()


@pytest.fixture
def world(tmp_path: Path, redis_url: str) -> Iterator[World]:
    made = World(tmp_path, redis_url)
    yield made
    made.delete()
