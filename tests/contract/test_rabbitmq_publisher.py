"""RabbitMQ keeps the contract, on a real broker."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.publisher_contract import PublisherContract
from tests.contract.rabbitmq_broker import RabbitBroker


class TestRabbitPublisher(PublisherContract):
    @pytest.fixture
    def broker(self, rabbitmq_url: str) -> Iterator[RabbitBroker]:
        with closing(RabbitBroker(rabbitmq_url)) as broker:
            yield broker
