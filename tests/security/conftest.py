"""A server of each kind for the file that needs it; a watch over what is printed and logged."""

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from tests.contract.kafka_broker import KafkaBroker
from tests.contract.rabbitmq_broker import RabbitBroker
from tests.security.certificates import Certificates, make_certificates
from tests.security.secure_kafka import SecureKafka, secure_kafka
from tests.security.secure_rabbitmq import SecureRabbit
from tests.security.secure_redis import SecureRedis, secure_redis

CANARY = "canary"  # in every secret here


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def kafka(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureKafka]:
    with secure_kafka(tmp_path_factory.mktemp("kafka"), certificates) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def topics(kafka: SecureKafka) -> Iterator[KafkaBroker]:
    """Make topics and read them, over the listener that asks nobody anything."""
    with closing(KafkaBroker(f"127.0.0.1:{kafka.open}")) as broker:
        yield broker


@pytest.fixture(scope="module")
def rabbit(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureRabbit]:
    rabbit = SecureRabbit(tmp_path_factory.mktemp("rabbit"), certificates)
    try:
        rabbit.start()
        yield rabbit
    finally:
        rabbit.stop()


@pytest.fixture(scope="module")
def queues(rabbit: SecureRabbit) -> Iterator[RabbitBroker]:
    """Make queues and read them, over the listener without TLS."""
    with closing(RabbitBroker(rabbit.open_url)) as broker:
        yield broker


@pytest.fixture(scope="module")
def store(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureRedis]:
    with secure_redis(tmp_path_factory.mktemp("redis"), certificates) as store:
        yield store


class _Lines(logging.Handler):
    """Keeps every line; caplog forgets those of the test itself when its fixtures end."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(autouse=True)
def watch(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Let everybody log whatever they can, and find no secret in it."""
    for name in ("kafka", "pika", "redis"):
        caplog.set_level(logging.DEBUG, name)
    caplog.set_level(logging.DEBUG)
    heard = _Lines()
    logging.getLogger().addHandler(heard)
    with capture_logs() as ours:
        yield
    logging.getLogger().removeHandler(heard)
    assert [line for line in [*heard.lines, repr(ours)] if CANARY in line] == []
