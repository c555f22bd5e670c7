"""Kafka through librdkafka keeps the contract, on a real broker."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.librdkafka_broker import LibrdkafkaBroker
from tests.contract.publisher_contract import PublisherContract


class TestLibrdkafkaPublisher(PublisherContract):
    @pytest.fixture
    def broker(self, kafka_bootstrap: str) -> Iterator[LibrdkafkaBroker]:
        with closing(LibrdkafkaBroker(kafka_bootstrap)) as broker:
            yield broker
