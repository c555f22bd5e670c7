"""The real RabbitMQ, and one of the module's own for what changes or stops a whole broker."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pika
import pytest

from tests.support.rabbitmq.own_rabbitmq import PrivateRabbit
from tests.support.rabbitmq.rabbitmq_broker import RabbitBroker


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRabbit]:
    rabbit = PrivateRabbit(tmp_path_factory.mktemp("rabbitmq"))
    try:
        rabbit.start()
        yield rabbit
    finally:
        rabbit.stop()


@pytest.fixture
def broker(rabbitmq_url: str) -> Iterator[RabbitBroker]:
    with closing(RabbitBroker(rabbitmq_url)) as broker:
        yield broker


@pytest.fixture
def channel(rabbitmq_url: str) -> Iterator[Any]:
    with closing(pika.BlockingConnection(pika.URLParameters(rabbitmq_url))) as connection:
        yield connection.channel()
