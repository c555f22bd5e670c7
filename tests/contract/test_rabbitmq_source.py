"""RabbitMQ's queues and streams pass the contract of sources."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.sources import SourceContract
from tests.support.rabbitmq_queues import RabbitQueues


class TestClassicQueue(SourceContract):
    @pytest.fixture
    def broker(self, rabbitmq_url: str) -> Iterator[RabbitQueues]:
        with closing(RabbitQueues(rabbitmq_url)) as broker:
            yield broker


class TestQuorumQueue(SourceContract):
    @pytest.fixture
    def broker(self, rabbitmq_url: str) -> Iterator[RabbitQueues]:
        with closing(RabbitQueues(rabbitmq_url, "quorum")) as broker:
            yield broker


class TestStream(SourceContract):
    @pytest.fixture
    def broker(self, rabbitmq_url: str) -> Iterator[RabbitQueues]:
        with closing(RabbitQueues(rabbitmq_url, "stream")) as broker:
            yield broker
