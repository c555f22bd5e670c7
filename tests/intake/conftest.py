"""An intake on the store of the local services, and what it reads from."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.intake.entrance import Entrance
from tests.support.contract.source_under_test import Origin
from tests.support.kafka.kafka_sources import CLIENTS, KafkaSources
from tests.support.rabbitmq.rabbitmq_queues import RabbitQueues


@pytest.fixture
def opened(redis_url: str) -> Iterator[Callable[..., Entrance]]:
    """Open an intake with these settings of its own."""
    with ExitStack() as stack:

        def open_one(**intake: Any) -> Entrance:
            return stack.enter_context(closing(Entrance(redis_url, **intake)))

        yield open_one


@pytest.fixture
def entrance(opened: Callable[..., Entrance]) -> Entrance:
    return opened()


@pytest.fixture
def origin(request: pytest.FixtureRequest) -> Iterator[Origin]:
    """A new topic, where the parameter is a client of Kafka, or else a queue of that kind."""
    if request.param in CLIENTS:
        bootstrap = request.getfixturevalue("kafka_bootstrap")
        settings = {"type": "kafka", "bootstrap_servers": [bootstrap], "client": request.param}
        with closing(KafkaSources(bootstrap, request.param)) as topics:
            name = topics.create()
            yield Origin(topics, name, settings, {"topic": name, "group": f"group-of-{name}"})
    else:
        url = request.getfixturevalue("rabbitmq_url")
        with closing(RabbitQueues(url, request.param)) as queues:
            name = queues.create()
            yield Origin(queues, name, {"type": "rabbitmq", "url": url}, {"queue": name})
