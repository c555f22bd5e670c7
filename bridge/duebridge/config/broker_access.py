"""Reaches the brokers that a configuration names: their types, settings, plans and publishers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from duebridge.config.load import resolved_broker
from duebridge.config.models import Config
from duebridge.ports.broker import BrokerType
from duebridge.ports.discovery import broker_type, naming
from duebridge.ports.publisher import Publisher
from duebridge.ports.source import SourcePlan


class LiveSettings(Mapping[str, object]):
    """A mapping that reads its values again at each access, so that a secret's file may change.

    Reading raises `ConfigError` while a variable or file is missing.
    """

    def __init__(self, read: Callable[[], Mapping[str, object]]) -> None:
        self._read = read

    def __getitem__(self, key: str) -> object:
        return self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        """Show no secret."""
        return "LiveSettings(***)"


def live_settings(config: Config, name: str) -> LiveSettings:
    """Return the settings of a broker, whose references are resolved whenever one is read."""
    return LiveSettings(partial(resolved_broker, config, name))


@contextmanager
def using(config: Config, name: str) -> Iterator[BrokerType]:
    """Give the type of a broker; what it raises is prefixed with the broker's name.

    Raises `ClientMissing` for an `ImportError`, within the block too.
    """
    settings = config.brokers[name]
    with naming(name, settings.type, getattr(settings, "client", "")):
        yield broker_type(settings.type)


def source_plan(config: Config, name: str) -> SourcePlan:
    """Return the plan of the source of the intake of this name."""
    intake = config.intakes[name]
    source = intake.source.model_dump()
    return SourcePlan(
        intake=name,
        broker=source.pop("broker"),
        source=source,
        declare=None if intake.declare is None else intake.declare.model_dump(),
        dead_letter=intake.dead_letter or config.routes[intake.route].dead_letter,
    )


def open_publishers(config: Config, stack: ExitStack) -> dict[str, Publisher]:
    """Return a publisher per broker in use; the stack closes them, even if one fails to open.

    Raises `ConfigError`, which names the broker and its setting, or the package to install.
    """
    publishers = {}
    for name in used_brokers(config):
        publishers[name] = open_publisher(config, name)
        stack.callback(publishers[name].close)
    return publishers


def used_brokers(config: Config) -> list[str]:
    """Return the brokers of the routes' targets and dead letters, sorted."""
    targets = [route.target for route in config.routes.values()]
    targets += [route.dead_letter for route in config.routes.values() if route.dead_letter]
    return sorted({target.broker for target in targets})


def open_publisher(config: Config, name: str) -> Publisher:
    """Return a publisher of one broker, which connects on first use; raises `ConfigError`."""
    with using(config, name) as kind:
        deadline_s = config.worker.publish_deadline / 1000
        return kind.open_publisher(live_settings(config, name), deadline_s)
