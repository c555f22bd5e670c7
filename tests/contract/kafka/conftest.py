"""Topics of the real Kafka, read by each client in turn; publishers have a broker of their own."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.kafka.kafka_sources import CLIENTS, KafkaSources


@pytest.fixture(params=CLIENTS)
def broker(kafka_bootstrap: str, request: pytest.FixtureRequest) -> Iterator[KafkaSources]:
    with closing(KafkaSources(kafka_bootstrap, request.param)) as broker:
        yield broker
