"""A RabbitMQ of the module's own, for what changes or stops a whole broker."""

from collections.abc import Iterator

import pytest

from tests.support.rabbitmq.own_rabbitmq import PrivateRabbit


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRabbit]:
    rabbit = PrivateRabbit(tmp_path_factory.mktemp("rabbitmq"))
    try:
        rabbit.start()
        yield rabbit
    finally:
        rabbit.stop()
