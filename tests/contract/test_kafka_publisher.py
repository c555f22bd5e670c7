"""Kafka keeps the contract, on a real broker."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.kafka_broker import KafkaBroker
from tests.contract.publisher_contract import PublisherContract


class TestKafkaPublisher(PublisherContract):
    @pytest.fixture
    def broker(self, kafka_bootstrap: str) -> Iterator[KafkaBroker]:
        with closing(KafkaBroker(kafka_bootstrap)) as broker:
            yield broker
