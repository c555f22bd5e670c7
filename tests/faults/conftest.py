"""Services of the fault tests' own: a second stack, which may be killed."""

from collections.abc import Iterator

import pytest

from tests.faults.stack import Stack


@pytest.fixture(scope="session")
def stack(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, rabbitmq_url: str
) -> Iterator[Stack]:
    """Start it; the first one being there proves that the programs are installed."""
    assert kafka_bootstrap
    assert rabbitmq_url
    stack = Stack(tmp_path_factory.mktemp("services"))
    yield stack
    stack.close()
