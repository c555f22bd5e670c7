"""A reload reaches an intake whole: its needs of the store are checked, its letters go with it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from duebridge.config.models import Config
from duebridge.errors import StoreUnfit
from duebridge.intake.process import IntakeRunner
from duebridge.store.server.connection import open_connection
from tests.intake.entrance import intake_config
from tests.support.redis.redis_node import RedisNode

Started = Callable[[Config], IntakeRunner]


@pytest.fixture
def started() -> Iterator[Started]:
    """Run the intake `in` of a configuration without lanes, as `run --only` does."""
    with ExitStack() as stack:

        def start(config: Config) -> IntakeRunner:
            connection = stack.enter_context(closing(open_connection(str(config.store.url))))
            runner = IntakeRunner(config, connection, ["in"])
            stack.callback(runner.drain)
            runner.start()
            return runner

        yield start


def with_route(config: Config, **changed: object) -> Config:
    route = config.routes["r"].model_copy(update=changed)
    return config.model_copy(update={"routes": {**config.routes, "r": route}})


def test_swap_of_an_intake_alone_to_a_durability_that_the_server_lacks_is_refused(
    started: Started, own_redis: RedisNode
) -> None:
    own_redis.ask("CONFIG", "SET", "appendfsync", "everysec")
    config = intake_config("n", own_redis.url)
    runner = started(config)

    with pytest.raises(StoreUnfit, match="fsync: expected appendonly yes and appendfsync"):
        runner.swap(with_route(config, durability="fsync"))
    assert runner.config is config
