"""One Spark session for all tests, paid once; each test has a namespace of its own."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from duebridge_connectors.spark.session import delta_settings
from tests.spark.cold_route import ColdRoute
from tests.spark.object_servers import S3Server, hdfs_server, s3_server
from tests.spark.world import Topics, World
from tests.support.checkout import downloaded, missing
from tests.support.kafka.kafka_broker import KafkaBroker
from tests.support.spark.launch import JAVA_OPTIONS, OF_PYTHON, SETTINGS, remember_names

GIVE_UP_S = 600  # a job or two: seconds, or minutes on a busy machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder more time, but for those that say how long they have."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(GIVE_UP_S))


@pytest.fixture(scope="session")
def kafka_jars() -> str:
    """Spark's connectors to Kafka and Delta, as the setting `spark.jars` takes it."""
    return downloaded("spark")


@pytest.fixture(scope="session")
def spark(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session that tries a task four times, as a cluster does."""
    if shutil.which("java") is None:
        missing("java", "install OpenJDK 17, such as openjdk-17-jre-headless")
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", **OF_PYTHON}
    remember_names()
    session = (
        SparkSession.builder.master("local[2,4]")
        .config(map=delta_settings({"spark.jars": kafka_jars}))
        .config("spark.driver.extraJavaOptions", f"{JAVA_OPTIONS} -XX:+UseParallelGC")
        .config(map=SETTINGS)
        .config("spark.sql.adaptive.enabled", "false")  # plans anew at each stage of ten rows
        .config("spark.driver.memory", "2g")  # every test of a process shares this heap
        .config("spark.buffer.pageSize", "1m")  # a join of ten rows takes a page: 16 MB by itself
        .config("spark.python.authenticate.socketTimeout", "60s")  # for a Python on a busy machine
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An object store; each test has names of its own there."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of an HDFS; each test has a directory of its own there."""
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as uri:
        yield uri


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Iterator[World]:
    made = World(tmp_path, redis_url, lambda: request.getfixturevalue("spark"))
    yield made
    made.delete()


@pytest.fixture
def topics(world: World, kafka_bootstrap: str) -> Iterator[Topics]:
    """Topics of the real Kafka, which the world's configuration names from now on."""
    world.use(world.url, kafka_bootstrap)
    with closing(KafkaBroker(kafka_bootstrap)) as broker:
        yield Topics(broker)


@pytest.fixture
def cold(world: World, monkeypatch: pytest.MonkeyPatch) -> ColdRoute:
    return ColdRoute(world, monkeypatch)
