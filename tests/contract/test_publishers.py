"""Every connector passes the contract on its real broker."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.memory_broker import MemoryBroker
from tests.contract.publisher_contract import PublisherContract
from tests.support.checkout import ROOT
from tests.support.contract.broker_under_test import meanings
from tests.support.kafka.kafka_broker import KafkaBroker, LibrdkafkaBroker
from tests.support.rabbitmq.rabbitmq_broker import RabbitBroker


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


def test_features_are_those_of_the_guide() -> None:
    declared = [b.features for b in (KafkaBroker, LibrdkafkaBroker, MemoryBroker, RabbitBroker)]
    rows = [["", *(each.broker for each in declared)], ["---"] * 5]
    for name, meaning in meanings().items():
        rows.append([meaning, *("yes" if getattr(each, name) else "no" for each in declared)])
    sizes = [f"{each.largest_body:,}" for each in declared]
    rows.append(["largest body that the tests send, bytes", *sizes])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    assert table in (ROOT / "connectors" / "README.md").read_text("utf-8")
