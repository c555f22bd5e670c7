"""Every connector passes the contract on its real broker."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.librdkafka_broker import LibrdkafkaBroker
from tests.contract.publisher_contract import PublisherContract
from tests.contract.rabbitmq_broker import RabbitBroker
from tests.support.kafka_broker import KafkaBroker


class TestKafkaPublisher(PublisherContract):
    @pytest.fixture
    def broker(self, kafka_bootstrap: str) -> Iterator[KafkaBroker]:
        with closing(KafkaBroker(kafka_bootstrap)) as broker:
            yield broker


class TestLibrdkafkaPublisher(PublisherContract):
    @pytest.fixture
    def broker(self, kafka_bootstrap: str) -> Iterator[LibrdkafkaBroker]:
        with closing(LibrdkafkaBroker(kafka_bootstrap)) as broker:
            yield broker


class TestRabbitPublisher(PublisherContract):
    @pytest.fixture
    def broker(self, rabbitmq_url: str) -> Iterator[RabbitBroker]:
        with closing(RabbitBroker(rabbitmq_url)) as broker:
            yield broker
