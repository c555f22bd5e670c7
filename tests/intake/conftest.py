"""An intake on the store of the local services."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.intake.entrance import Entrance


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
