"""Renders the effective configuration: defaults merged, secrets masked; the output loads again.

References are shown unresolved, also in routes that inherit them: the values of `${VAR}` and
`${file:...}` never appear.
"""

from typing import Any

from duebridge.config.load import config_of
from duebridge.config.models import Config
from duebridge.config.secrets import (
    KeyPath,
    map_leaves,
    masked_option,
    masked_secret,
    masked_setting,
    masked_url,
)
from duebridge.config.yaml_tree import Tree, read_tree


def rendered_config(text: str, name: str) -> dict[str, Any]:
    """Return the effective configuration of a text as plain values; raises `ConfigError`."""
    tree = read_tree(text, name)
    shown: dict[str, Any] = _shown(tree, (), _merged(config_of(tree)))
    return shown


def masked_config(config: Config) -> dict[str, Any]:
    """Return a configuration in force as plain values: defaults merged, secrets masked.

    References of the store, the brokers, the tokens and the cold tiers are shown unresolved.
    """
    shown: dict[str, Any] = map_leaves((), _merged(config), _masked)
    return shown


def _merged(config: Config) -> dict[str, Any]:
    """Return a configuration without the defaults, which are merged into each route."""
    whole = config.model_dump(mode="json", exclude={"defaults"}, exclude_none=True)
    for route in whole["routes"].values():
        del route["name"]
        _leave_out_idle(route["retry"])
    for intake in whole["intakes"].values():
        del intake["name"]
    return whole


def _leave_out_idle(retry: dict[str, str]) -> None:
    if retry["backoff"] == "fixed":
        del retry["max"]
        if retry["jitter"] != "none":
            del retry["jitter"]


def _shown(tree: Tree, path: KeyPath, value: Any) -> Any:
    return map_leaves(path, value, lambda at, leaf: _masked(at, _as_written(tree, at, leaf)))


def _as_written(tree: Tree, path: KeyPath, value: object) -> object:
    place = tree.places.get(path)
    if place is None and path[0] == "routes":
        place = tree.places.get(("defaults", *path[2:]))
    has_reference = place is not None and isinstance(place.written, str) and "$" in place.written
    return place.written if place is not None and has_reference else value


def _masked(path: KeyPath, value: object) -> object:
    match path:
        case ("brokers", _, *inside):
            return masked_setting([str(key) for key in inside if isinstance(key, str)], value)
        case ("routes", _, "cold_tier", "options", name):
            return masked_option(str(name), value)
        case ("store", "url"):
            return masked_url(str(value))
        case ("serve", "tokens"):
            return masked_secret(value)
    return value
