"""Checks a configuration offline: its values, and its brokers as a worker would at its start."""

from collections.abc import Iterator

from pydantic import ValidationError
from pydantic_core import PydanticKnownError

from duebridge.config.brokers import broker_settings
from duebridge.config.load import validated
from duebridge.config.models import Config, WorkerSettings
from duebridge.config.secrets import KeyPath, map_leaves, resolve_at
from duebridge.config.yaml_tree import Fault, Tree, error_of
from duebridge.errors import ConfigError
from duebridge.ports.discovery import ClientMissing, broker_type, naming
from duebridge.ports.settings import BrokerSettings


def checked_config(tree: Tree) -> tuple[Config, list[ClientMissing]]:
    """Return the configuration, and the clients that this machine lacks to check its brokers.

    Raises one `ConfigError` for all mistakes: a broker is checked beside a mistake in a route.
    """
    config, faults = validated(tree)
    found = list(broker_faults(tree))
    faults += [fault for fault in found if isinstance(fault, Fault)]
    if faults or config is None:
        raise error_of(faults)
    return config, [error for error in found if isinstance(error, ClientMissing)]


def broker_faults(tree: Tree) -> Iterator[Fault | ClientMissing]:
    """Yield the faults, or the missing client, of each broker that cannot be opened.

    Settings whose references cannot be resolved on this machine are not checked, nor those of a
    broker that its model refuses.
    """
    deadline_s = _publish_deadline_ms(tree) / 1000
    for name, model in _brokers(tree).items():
        unresolved: set[KeyPath] = set()
        settings = _resolved(name, model, unresolved)
        try:
            with naming(name, model.type, getattr(model, "client", "")):
                broker_type(model.type).check_settings(settings, deadline_s)
        except ClientMissing as error:
            yield error
        except ConfigError as error:
            for line in str(error).splitlines():
                fault = _located(tree, ("brokers", name), line)
                if not any(fault.path == path[: len(fault.path)] for path in unresolved):
                    yield fault


def _brokers(tree: Tree) -> dict[str, BrokerSettings]:
    """Return the brokers of a file, but for those that their models refuse."""
    given, found = tree.value_at(("brokers",)), {}
    for name, settings in given.items() if isinstance(given, dict) else ():
        try:
            found[name] = broker_settings(settings)
        except (ValidationError, PydanticKnownError):  # the latter of what is no mapping
            continue
    return found


def _publish_deadline_ms(tree: Tree) -> int:
    """Return the publish deadline of a file; the default where its `worker` is invalid."""
    given = tree.value_at(("worker",))
    try:
        return WorkerSettings.model_validate(given).publish_deadline
    except ValidationError:
        return WorkerSettings().publish_deadline


def _resolved(name: str, settings: BrokerSettings, unresolved: set[KeyPath]) -> dict[str, object]:
    def known(path: KeyPath, leaf: object) -> object:
        try:
            return resolve_at("", leaf)
        except ConfigError:
            unresolved.add(path)
            return leaf

    return {
        key: map_leaves(("brokers", name, key), value, known) if settings.is_at_use(key) else value
        for key, value in settings.model_dump().items()
    }


def _located(tree: Tree, broker: KeyPath, text: str) -> Fault:
    """Return a fault located at the deepest setting whose path is a prefix of the text."""
    paths = {".".join(map(str, path)): path for path in tree.places if path[:2] == broker}
    found = max((name for name in paths if text.startswith(f"{name}: ")), key=len, default="")
    path = paths.get(found, broker)
    rest = text.removeprefix(found or ".".join(map(str, broker))).lstrip(":. ")
    return tree.fault(path, rest, is_of_key="unknown " in rest)
