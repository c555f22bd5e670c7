"""A publisher and a target of a module's `broker`; asserts of the contracts explain themselves."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import Publisher
from tests.support.certificates import no_secret_is_logged  # noqa: F401
from tests.support.contract.broker_under_test import BrokerUnderTest

pytest.register_assert_rewrite("tests.contract.publisher_contract", "tests.contract.sources")

DEADLINE_S = 15.0


@pytest.fixture
def publisher(broker: BrokerUnderTest) -> Iterator[Publisher]:
    with closing(broker.open(DEADLINE_S)) as publisher:
        yield publisher


@pytest.fixture
def target(broker: BrokerUnderTest) -> Target:
    target = broker.missing_target()
    broker.create(target)
    return target
