"""Loads the YAML configuration; reports all errors, each with file, line, column and path.

    duebridge.yaml:12:5 routes.order-timeout.target.topc: unknown key, did you mean topic?

Checks the structure and single values first, then rules across values. A message about a reference
(`${VAR}`) shows the reference, not its value.
"""

import codecs
from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from duebridge.config.brokers import type_of
from duebridge.config.durability import ReplicatedDurability, ReplicaWait
from duebridge.config.intakes import IntakeSettings
from duebridge.config.models import (
    Config,
    OnTargetError,
    RetryPolicy,
    Route,
    RouteSettings,
    Store,
    WorkerSettings,
)
from duebridge.config.secrets import KeyPath, resolve_at, resolve_known
from duebridge.config.serve import Serve
from duebridge.config.yaml_tree import (
    Fault,
    Tree,
    error_of,
    kind_of,
    position_of,
    read_tree,
    shown,
)
from duebridge.errors import ConfigError, ConfigFileError, did_you_mean, unlisted_name
from duebridge.ports.broker import BrokerType

MAX_BYTES = 1024 * 1024
_ANOTHER = "; commands take one by --config or DUEBRIDGE_CONFIG"

_BLOCKS: dict[str | int, type[BaseModel]] = {
    "store": Store,
    "worker": WorkerSettings,
    "serve": Serve,
    "defaults": RouteSettings,
    "retry": RetryPolicy,
    "on_target_error": OnTargetError,
    "durability": ReplicatedDurability,
    "replicated": ReplicaWait,
}
_EXPECTED = {  # by pydantic error type; names ending in _type concern the kind of a value
    "dict_type": "a mapping",
    "expected": "{text}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} character",
    "string_type": "text",
    "tuple_type": "a list",
}
_KEYS = (("[key]",), ("name",))  # pydantic's locations of an invalid key
_SAID = {
    "missing": "missing key",
    "too_short": "expected at least one item; got none",
}


def load_config(path: str | Path) -> Config:
    """Return the configuration in a file; raises `ConfigError` with a line for each error found."""
    return load_config_text(read_config_text(path), str(path))


def read_config_text(path: str | Path) -> str:
    """Return the text of a file; raises `ConfigError` if it is missing or not UTF-8."""
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        hint = _ANOTHER if isinstance(error, FileNotFoundError) else ""
        raise ConfigFileError(f"{name}: cannot be read: {error.strerror}{hint}") from error
    if len(data) > MAX_BYTES:
        raise ConfigFileError(f"{name}: expected at most 1 MiB")
    data = data.removeprefix(codecs.BOM_UTF8)  # here, since error columns count from after it
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        line, column = position_of(before, len(before))
        found = f"byte 0x{data[error.start]:02x}"
        raise ConfigFileError(f"{name}:{line}:{column} expected UTF-8; got {found}") from None


def load_config_text(text: str, name: str) -> Config:
    """Return the configuration in a text; messages call it `name`."""
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise ConfigFileError(f"{name}: expected at most 1 MiB")
    return config_of(read_tree(text, name))


def config_of(tree: Tree) -> Config:
    """Return the configuration that a tree holds; raises `ConfigError`."""
    config, faults = validated(tree)
    # not in an `except`: pydantic's error contains resolved secrets
    if faults or config is None:
        raise error_of(faults)
    return config


def resolved_store_url(config: Config) -> str:
    """Return the URL to connect to; raises `ConfigError` for a missing variable or file."""
    return str(resolve_at("store.url", config.store.url))


def resolved_tokens(config: Config) -> str:
    """Return the text of the file of tokens as it is now; raises `ConfigError`."""
    return str(resolve_at("serve.tokens", config.serve.tokens))


def resolved_broker(config: Config, name: str) -> dict[str, object]:
    """Return the settings of a broker with every reference resolved.

    Raises `ConfigError` for a missing variable or file, naming the place.
    """
    if name not in config.brokers:
        raise ConfigError(f"brokers: {unlisted_name(name, sorted(config.brokers))}")
    settings = config.brokers[name]
    return {
        key: resolve_at(f"brokers.{name}.{key}", value) if settings.is_at_use(key) else value
        for key, value in settings.model_dump().items()
    }


def known_broker(config: Config, name: str) -> dict[str, object]:
    """Return the settings of a broker, resolved, without those that this process cannot resolve."""
    settings = config.brokers[name]
    return {
        key: known
        for key, value in settings.model_dump().items()
        if (known := resolve_known(value) if settings.is_at_use(key) else value) is not None
    }


def validated(tree: Tree) -> tuple[Config | None, list[Fault]]:
    """Return the configuration, or None where it is invalid, and its faults, one for each path."""
    try:
        return Config.model_validate(tree.value), tree.faults
    except ValidationError as error:
        found: dict[KeyPath, Fault] = {}
        for details in error.errors(include_url=False, include_input=False):
            fault = _fault(tree, details)
            found.setdefault(fault.path, fault)  # a fault of the defaults repeats per route
        told = {fault.path for fault in tree.faults}
        return None, tree.faults + [fault for path, fault in found.items() if path not in told]


def _fault(tree: Tree, error: ErrorDetails) -> Fault:
    path = _written_path(tree, error["loc"])
    is_of_key = error["type"] == "extra_forbidden" or error["loc"][-1:] in _KEYS
    return tree.fault(path, _text(tree, error, tree.written(path)), is_of_key=is_of_key)


def _written_path(tree: Tree, loc: KeyPath) -> KeyPath:
    """Return the path in the file at which to report an error."""
    if loc[-1:] == ("[key]",):
        return loc[:-1]
    if loc[:1] not in (("routes",), ("intakes",)) or loc in tree.places:
        return loc
    if loc[0] == "routes" and len(loc) > 2 and ("defaults", *loc[2:]) in tree.places:
        return ("defaults", *loc[2:])
    return loc[:2] if loc[2:] == ("name",) else loc


def _text(tree: Tree, error: ErrorDetails, written: object) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(tree, error["loc"])
    if kind in _SAID:
        return _SAID[kind]
    if kind in _EXPECTED:
        expected = _EXPECTED[kind].format(**context).replace("'", "")  # pydantic quotes choices
        got = kind_of(written) if kind.endswith("_type") else shown(written)
        return f"expected {expected}; got {got}"
    return _unresolved(str(context.get("text", error["msg"])), written)


def _unresolved(text: str, written: object) -> str:
    """Return the message with the reference in place of its resolved value."""
    if isinstance(written, str) and "$" in written and "; got " in text:
        return f"{text.partition('; got ')[0]}; got {shown(written)}"
    return text


def _unknown_key(tree: Tree, loc: KeyPath) -> str:
    model = _model_of(tree, loc[:-1])
    known = sorted(set(model.model_fields) - {"name"}) if model else []
    if close := did_you_mean(str(loc[-1]), known):
        return f"unknown key{close}"
    return f"unknown key, expected one of {', '.join(known)}" if known else "unknown key"


def _model_of(tree: Tree, block: KeyPath) -> type[BaseModel] | None:
    match block:
        case ():
            return Config
        case ("brokers", _):
            kind = type_of(tree.value_at(block))
            return None if kind is None else kind.settings
        case ("routes", _):
            return Route
        case (
            ("routes", _, "target" | "dead_letter")
            | ("routes", _, "allow_targets", _)
            | ("intakes", _, "dead_letter")
        ):
            kind = _type_at(tree, block)
            return None if kind is None else kind.target
        case ("intakes", _):
            return IntakeSettings
        case ("intakes", _, "source"):
            kind = _type_at(tree, block)
            return None if kind is None else kind.source
        case ("intakes", _, "declare"):
            kind = _type_at(tree, (*block[:2], "source"))
            return None if kind is None else kind.declaration
    return _BLOCKS.get(block[-1])


def _type_at(tree: Tree, block: KeyPath) -> BrokerType | None:
    return type_of(tree.value_at(("brokers", tree.value_at((*block, "broker")))))
