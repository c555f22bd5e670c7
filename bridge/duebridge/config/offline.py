"""Checks broker settings offline, as a worker would at its start."""

from collections.abc import Iterator

from duebridge.config.models import Config
from duebridge.config.secrets import resolve_at
from duebridge.config.yaml_tree import Fault, KeyPath, Tree
from duebridge.errors import ConfigError
from duebridge.ports.discovery import ClientMissing, broker_type, naming


def broker_faults(config: Config, tree: Tree) -> Iterator[Fault | ClientMissing]:
    """Yield a fault, or the missing client, for each broker that cannot be opened.

    Settings whose references cannot be resolved on this machine are not checked.
    """
    for name in config.brokers:
        unresolved: set[KeyPath] = set()
        settings = _resolved(config, name, unresolved)
        try:
            with naming(name, str(settings["type"])):
                kind = broker_type(str(settings["type"]))
                kind.check_settings(settings, config.worker.publish_deadline / 1000)
        except ClientMissing as error:
            yield error
        except ConfigError as error:
            fault = _located(tree, ("brokers", name), str(error))
            if not any(fault.path == path[: len(fault.path)] for path in unresolved):
                yield fault


def _resolved(config: Config, name: str, unresolved: set[KeyPath]) -> dict[str, object]:
    settings = config.brokers[name]

    def value(path: KeyPath, given: object) -> object:
        if isinstance(given, dict):
            return {key: value((*path, key), inner) for key, inner in given.items()}
        if isinstance(given, list):
            return [value((*path, place), inner) for place, inner in enumerate(given)]
        try:
            return resolve_at("", given)
        except ConfigError:
            unresolved.add(path)
            return given

    given = settings.model_dump()
    return {
        key: value(("brokers", name, key), given[key]) if settings.is_at_use(key) else given[key]
        for key in given
    }


def _located(tree: Tree, broker: KeyPath, text: str) -> Fault:
    """Return a fault located at the deepest setting whose path is a prefix of the text."""
    paths = {".".join(map(str, path)): path for path in tree.places if path[:2] == broker}
    found = max((name for name in paths if text.startswith(f"{name}: ")), key=len, default="")
    path = paths.get(found, broker)
    rest = text.removeprefix(found or ".".join(map(str, broker))).lstrip(":. ")
    return tree.fault(path, rest, is_of_key="unknown " in rest)
