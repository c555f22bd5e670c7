"""A reload reaches an intake whole: its needs of the store are checked, its letters go with it."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from threading import Event

import pytest

from duebridge.cli.worker_process import swap_both
from duebridge.config.models import Config
from duebridge.envelope import Target
from duebridge.errors import ConfigError, StoreUnfit
from duebridge.intake.process import IntakeRunner
from duebridge.ports.publisher import Delivery, Outcome, Reason, Verdict
from duebridge.store.server.connection import open_connection
from duebridge.worker.process import Runner
from duebridge_connectors.memory import MemoryPublisher, MemoryQueue
from tests.intake.entrance import intake_config, queued
from tests.support.redis.redis_node import RedisNode

Started = Callable[[Config], IntakeRunner]
WITHIN_S = 20.0
MISSING = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "E", "no topic")


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


@pytest.fixture
def config(redis_url: str) -> Config:
    """Its brokers publish to publishers of this process, by their names in `publisher`."""
    namespace = f"test-{secrets.token_hex(6)}"
    plain = intake_config(namespace, redis_url).model_dump(mode="json", exclude_unset=True)
    for name in plain["brokers"]:
        plain["brokers"][name] = {"type": "memory", "options": {"name": f"{namespace}-{name}"}}
    return Config.model_validate(plain)


def publisher(config: Config, broker: str) -> MemoryPublisher:
    return MemoryPublisher.named(f"{config.store.namespace}-{broker}")


def swap_alone(runner: IntakeRunner, new: Config) -> None:
    runner.swap(new)


def swap_beside_lanes(runner: IntakeRunner, new: Config) -> None:
    with closing(open_connection(str(new.store.url))) as connection:
        lanes = {name: publisher(new, name) for name in new.brokers}
        swap_both(Runner(runner.config, connection, lanes), runner, new)


@pytest.mark.parametrize("swap", [swap_alone, swap_beside_lanes])
@pytest.mark.parametrize("broker", ["box", "other"])
def test_reload_of_an_inherited_dead_letter_frees_the_batch_that_the_former_held(
    started: Started, config: Config, broker: str, swap: Callable[[IntakeRunner, Config], None]
) -> None:
    tried = Event()

    def miss(delivery: Delivery) -> Outcome | None:
        if delivery.target.topic != "dead":
            return None
        tried.set()
        return MISSING

    publisher(config, "box").script(miss)
    queue = MemoryQueue.named(f"q-{config.store.namespace}")
    queue.put(queued("bad", x_delay="soon"), queued("good", x_delay=5_000))
    runner = started(config)
    assert tried.wait(WITHIN_S)

    mended = Target(broker, topic="mended")
    swap(runner, with_route(config, dead_letter=mended))

    assert queue.all_are_settled(2, WITHIN_S)
    assert [each.target for each in publisher(config, broker).delivered] == [mended]


@pytest.fixture
def beside(config: Config) -> Iterator[Callable[[Config], Runner]]:
    """Run the lanes of a configuration in the intake's process, to its publishers in memory."""
    with ExitStack() as stack:

        def start(config: Config) -> Runner:
            connection = stack.enter_context(closing(open_connection(str(config.store.url))))
            lanes = {name: publisher(config, name) for name in ("box", "other", "unfit")}
            runner = Runner(config, connection, lanes)
            stack.callback(lambda: runner.drain(time.monotonic()))
            runner.start()
            return runner

        yield start


def test_reload_to_dead_letters_that_cannot_be_opened_leaves_lanes_and_intake_as_they_were(
    started: Started, config: Config, beside: Callable[[Config], Runner]
) -> None:
    config = with_unfit_broker(config)
    intakes, lanes = started(config), beside(config)
    views = [(view.route, view.target) for view in lanes.views()]

    moved, unfit = Target("other", topic="moved"), Target("unfit", topic="dead")
    with pytest.raises(ConfigError, match=r"brokers\.unfit\.options\.acks"):
        swap_both(lanes, intakes, with_route(config, target=moved, dead_letter=unfit))

    assert (lanes.config, intakes.config) == (config, config)
    assert [(view.route, view.target) for view in lanes.views()] == views
    queue = MemoryQueue.named(f"q-{config.store.namespace}")
    queue.put(queued("bad", x_delay="soon"), queued("good", x_delay=0))
    assert publisher(config, "box").deliveries_arrive(2, WITHIN_S)
    went = {each.target for each in publisher(config, "box").delivered}
    assert went == {config.routes["r"].target, config.routes["r"].dead_letter}
    assert publisher(config, "other").delivered == []


def test_reload_of_an_intake_alone_to_dead_letters_that_cannot_be_opened_changes_nothing(
    started: Started, config: Config
) -> None:
    config = with_unfit_broker(config)
    intakes = started(config)

    with pytest.raises(ConfigError, match=r"brokers\.unfit\.options\.acks"):
        intakes.swap(with_route(config, dead_letter=Target("unfit", topic="dead"), max_delay=1))

    assert intakes.config is config
    queue = MemoryQueue.named(f"q-{config.store.namespace}")
    queue.put(queued("bad", x_delay="soon"), queued("good", x_delay=5_000))
    assert queue.all_are_settled(2, WITHIN_S)
    (letter,) = publisher(config, "box").delivered
    assert letter.target == config.routes["r"].dead_letter, "of the good one a delay of 5 s is none"


def with_unfit_broker(config: Config) -> Config:
    """A broker more, which is found unfit only when a publisher is opened."""
    given = config.model_dump(mode="json", exclude_unset=True)
    options = {"acks": "1"}
    given["brokers"]["unfit"] = {
        "type": "kafka",
        "bootstrap_servers": ["127.0.0.1:1"],
        "options": options,
    }
    return Config.model_validate(given)
