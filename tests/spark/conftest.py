"""One Spark session for all tests, paid once; each test has a namespace of its own."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from duebridge.config.models import HOUR_MS
from duebridge_connectors.spark.cold.tier import Tier
from tests.spark.cold_route import ColdRoute
from tests.spark.topics import Topics
from tests.spark.world import LATER_MS, World
from tests.support.checkout import downloaded, missing
from tests.support.kafka_broker import KafkaBroker


@pytest.fixture(scope="session")
def kafka_jars() -> str:
    """Spark's Kafka connector, as the setting `spark.jars` takes it."""
    return downloaded("spark")


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


@pytest.fixture
def world(tmp_path: Path, redis_url: str) -> Iterator[World]:
    made = World(tmp_path, redis_url)
    yield made
    made.delete()


@pytest.fixture
def topics(world: World, kafka_bootstrap: str) -> Iterator[Topics]:
    """Topics of the real Kafka, which the world's configuration names from now on."""
    world.use(world.url, kafka_bootstrap)
    with closing(KafkaBroker(kafka_bootstrap)) as broker:
        yield Topics(broker)


@pytest.fixture
def cold(spark: SparkSession, world: World) -> ColdRoute:
    return ColdRoute(spark, world)


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the horizon reach so far that what is due in a month is to come back."""

    def pass_by(hours: int = 24) -> None:
        monkeypatch.setattr(Tier, "boundary_ms", lambda _: LATER_MS + hours * HOUR_MS)

    return pass_by
