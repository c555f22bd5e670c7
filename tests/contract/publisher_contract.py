"""The contract of `duebridge.ports.publisher.Publisher`, passed on every real broker.

A connector's test file is a subclass of `PublisherContract` with one fixture, `broker`, that
returns a `BrokerUnderTest`. What that broker cannot do it says in its `Features`.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import Publisher
from tests.contract.content_contract import ContentContract
from tests.contract.fault_contract import DEADLINE_S, FaultContract
from tests.contract.outage_contract import OutageContract
from tests.support.contract.broker_under_test import BrokerUnderTest


class PublisherContract(ContentContract, FaultContract, OutageContract):
    """Subclass it as Test…, with a fixture `broker`."""

    @pytest.fixture
    def publisher(self, broker: BrokerUnderTest) -> Iterator[Publisher]:
        with closing(broker.open(DEADLINE_S)) as publisher:
            yield publisher

    @pytest.fixture
    def target(self, broker: BrokerUnderTest) -> Target:
        target = broker.missing_target()
        broker.create(target)
        return target
