"""RabbitMQ's queues and streams, which share a connection, pass the contract of sources."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.sources import QueueContract, SourceContract
from tests.support.contract.source_under_test import SourceUnderTest, settled
from tests.support.rabbitmq.rabbitmq_queues import RabbitQueues


class TestClassicQueue(QueueContract):
    @pytest.fixture
    def broker(self, rabbitmq_url: str) -> Iterator[RabbitQueues]:
        with closing(RabbitQueues(rabbitmq_url)) as broker:
            yield broker


class TestQuorumQueue(SourceContract):
    @pytest.fixture
    def broker(self, rabbitmq_url: str) -> Iterator[RabbitQueues]:
        with closing(RabbitQueues(rabbitmq_url, "quorum")) as broker:
            yield broker


class TestStream(QueueContract):
    @pytest.fixture
    def broker(self, rabbitmq_url: str) -> Iterator[RabbitQueues]:
        with closing(RabbitQueues(rabbitmq_url, "stream")) as broker:
            yield broker

    def test_lag_becomes_the_number_of_messages_that_wait(
        self, broker: SourceUnderTest, name: str
    ) -> None:
        """A stream keeps what was read: its length is no lag."""
        broker.send(name, [b"one"])
        with closing(broker.open(name)) as source:
            settled(source, 1)
            assert source.lag() is None
