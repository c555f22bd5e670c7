"""Services of the fault tests' own, and a rig for each scenario on each broker."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.brokers import BrokerSide, KafkaSide, RabbitSide
from tests.faults.rig import Rig, Services


@pytest.fixture(scope="session")
def services(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, rabbitmq_url: str
) -> Iterator[Services]:
    """Start a second stack; the first one being there proves that the programs are installed."""
    assert kafka_bootstrap
    assert rabbitmq_url
    services = Services(tmp_path_factory.mktemp("services"))
    services.up("redis", "kafka", "rabbitmq")
    yield services
    services.down()


@pytest.fixture(params=["kafka", "rabbitmq"])
def rig(request: pytest.FixtureRequest, services: Services, tmp_path: Path) -> Iterator[Rig]:
    name = f"faults-{secrets.token_hex(4)}"
    broker: BrokerSide
    if request.param == "kafka":
        broker = KafkaSide(services.state("kafka")["bootstrap"], name)
    else:
        broker = RabbitSide(services.state("rabbitmq")["url"], name)
    rig = Rig(services, broker, tmp_path, name)
    yield rig
    rig.close()
