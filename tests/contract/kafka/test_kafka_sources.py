"""The contract of sources on the real Kafka, with both clients."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.sources import SourceContract
from tests.support.kafka.kafka_sources import CLIENTS, KafkaSources


class TestKafkaSources(SourceContract):
    @pytest.fixture(params=CLIENTS)
    def broker(
        self, kafka_bootstrap: str, request: pytest.FixtureRequest
    ) -> Iterator[KafkaSources]:
        with closing(KafkaSources(kafka_bootstrap, request.param)) as broker:
            yield broker
