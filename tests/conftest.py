"""What every test may ask for: the real services, or a skip that says why (in CI: a failure).

Also certificates, and a Kafka that wants them.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.support.certificates import Certificates, make_certificates
from tests.support.checkout import ROOT, missing
from tests.support.kafka import own_kafka
from tests.support.redis.redis_node import RedisNode, server
from tests.support.redis.redis_sets import ClusterOfSix, redis_cluster_of_six

# How fast a machine draws examples is no property of the code.
settings.register_profile("duebridge", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("duebridge")


# What takes longest begins first, so that no process is left with it alone at the end.
FIRST = ("spark", "faults", "bench", "failover", "contract")
SESSION = "tests/spark/"  # that of Spark, which its tests share
CHART = "tests/deploy/helm/"  # whose renderings its tests share
APART = ("tests/spark/cluster/", "tests/spark/test_killed_driver.py")  # these start their own


class Scheduling(LoadFileScheduling):
    """Gives a file to one process, and so the files that share a Spark session or the chart."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(CHART):
            return CHART
        is_apart = self.config.option.markexpr == "long" and nodeid.startswith(APART)
        if nodeid.startswith(SESSION) and not is_apart:
            return SESSION
        return super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer | None) -> LoadFileScheduling:
    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the folders; a folder's tests stay as they are."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    folder = item.path.relative_to(ROOT / "tests").parts[0] if ROOT in item.path.parents else ""
    return FIRST.index(folder) if folder in FIRST else len(FIRST)


@pytest.fixture(scope="session")
def service() -> Callable[[str, str], str]:
    """Return a lookup of the local services, as `make services-up` left them."""
    state = ROOT / ".services" / "services.json"

    def look_up(name: str, field: str) -> str:
        if not state.exists():
            missing(name, "run `make services-up`")
        address = json.loads(state.read_text()).get(name, {}).get(field)
        return str(address) if address else missing(name, "run `make services-up`")

    return look_up


@pytest.fixture(scope="session")
def redis_url(service: Callable[[str, str], str]) -> str:
    return service("redis", "url")


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisNode]:
    """A Redis of the test's own that keeps what it answered: to kill, to freeze and to fill."""
    node = server(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always")
    node.start()
    yield node
    node.kill()


@pytest.fixture(scope="module")
def steady_six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfSix]:
    """A Cluster without failovers: a node that is away stays the one that is asked."""
    home = tmp_path_factory.mktemp("six")
    with redis_cluster_of_six(home, "--appendonly", "yes", node_timeout_ms=60_000) as six:
        yield six


@pytest.fixture(scope="session")
def kafka_bootstrap(service: Callable[[str, str], str]) -> str:
    return service("kafka", "bootstrap")


@pytest.fixture(scope="session")
def rabbitmq_url(service: Callable[[str, str], str]) -> str:
    return service("rabbitmq", "url")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure_kafka(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[own_kafka.SecureKafka]:
    with own_kafka.secure_kafka(tmp_path_factory.mktemp("kafka"), certificates) as kafka:
        yield kafka
