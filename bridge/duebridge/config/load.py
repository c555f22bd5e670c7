"""Reads the YAML configuration; every error names file, line, column and path, all errors at once.

    duebridge.yaml:12:5 routes.order-timeout.target.topc: unknown key, did you mean topic?

First the shape of the file and each value by itself is checked, then, once these are right, what
the values say together. Where a reference (`${VAR}`) is refused, the message shows the reference.
"""

import codecs
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from duebridge.config.brokers import KafkaBroker, MemoryBroker, RabbitBroker
from duebridge.config.fields import did_you_mean
from duebridge.config.models import (
    Config,
    OnTargetError,
    RetryPolicy,
    Route,
    RouteSettings,
    Store,
    TargetSettings,
    WorkerSettings,
)
from duebridge.config.secrets import resolve_at
from duebridge.config.yaml_tree import Fault, KeyPath, Tree, all_of, kind_of, read_tree, shown
from duebridge.errors import ConfigError

MAX_BYTES = 1024 * 1024

_BROKERS: dict[str | int, type[BaseModel]] = {
    "kafka": KafkaBroker,
    "memory": MemoryBroker,
    "rabbitmq": RabbitBroker,
}
_BLOCKS: dict[str | int, type[BaseModel]] = {
    "store": Store,
    "worker": WorkerSettings,
    "defaults": RouteSettings,
    "retry": RetryPolicy,
    "on_target_error": OnTargetError,
}
_EXPECTED = {  # by pydantic's type of error; those that end in _type speak of the kind of a value
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
    "union_tag_invalid": "one of {expected_tags}",
}
_KEYS = (("[key]",), ("name",))  # where pydantic finds that a key is no name
_SAID = {
    "missing": "missing key",
    "too_short": "expected at least one item; got none",
    "union_tag_not_found": "missing key",
}


def load_config(path: str | Path) -> Config:
    """Return the configuration in a file; raises `ConfigError` with a line for every error."""
    return load_config_text(read_config_text(path), str(path))


def read_config_text(path: str | Path) -> str:
    """Return what a file holds; raises `ConfigError` where that is no text."""
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{name}: expected at most 1 MiB")
    data = data.removeprefix(codecs.BOM_UTF8)  # here, for an error's place counts from behind it
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        found = f"byte 0x{data[error.start]:02x}"
        raise ConfigError(f"{name}:{line}:{column} expected UTF-8; got {found}") from None


def load_config_text(text: str, name: str) -> Config:
    """Return the configuration that `text` is; `name` stands in messages for the file's."""
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise ConfigError(f"{name}: expected at most 1 MiB")
    return config_of(read_tree(text, name))


def config_of(tree: Tree) -> Config:
    """Return the configuration that a tree holds; raises `ConfigError`."""
    config, faults = _validated(tree)
    # here and not in an `except`: the error of pydantic holds what references stand for
    if faults or config is None:
        raise all_of(faults)
    return config


def resolved_store_url(config: Config) -> str:
    """Return the URL to connect to; raises `ConfigError` for a missing variable or file."""
    return str(resolve_at("store.url", config.store.url))


def resolved_broker(config: Config, name: str) -> dict[str, object]:
    """Return what a connector's `open_publisher` takes, with every reference resolved.

    The options of a memory broker are its settings. Raises `ConfigError` for a missing variable
    or file, naming the place.
    """
    if name not in config.brokers:
        known = ", ".join(sorted(config.brokers)) or "none"
        raise ConfigError(f"brokers: expected one of {known}; got {name!r}")
    settings = config.brokers[name].model_dump()
    if settings["type"] == "memory":
        settings = settings.pop("options") | settings
    return {key: resolve_at(f"brokers.{name}.{key}", value) for key, value in settings.items()}


def _validated(tree: Tree) -> tuple[Config | None, list[Fault]]:
    """Return the configuration, or everything that is wrong with it: one error for each path."""
    try:
        return Config.model_validate(tree.value), tree.faults
    except ValidationError as error:
        found: dict[KeyPath, Fault] = {}
        for fault in _faults(tree, error.errors(include_url=False, include_input=False)):
            found.setdefault(fault.path, fault)  # what is wrong in the defaults is so in each route
        told = {fault.path for fault in tree.faults}
        return None, tree.faults + [fault for path, fault in found.items() if path not in told]


def _faults(tree: Tree, errors: list[ErrorDetails]) -> Iterator[Fault]:
    for error in errors:
        path = _written_path(tree, error)
        nearest = path
        while nearest not in tree.places:
            nearest = nearest[:-1]
        place = tree.places[nearest]
        is_of_key = error["type"] == "extra_forbidden" or error["loc"][-1:] in _KEYS
        at = place.key if is_of_key or nearest != path else place.at
        text = _text(error, place.written if nearest == path else None)
        yield Fault(at, path, text, tree.file)


def _written_path(tree: Tree, error: ErrorDetails) -> KeyPath:
    """Return where the user wrote, or left out, what the error is about."""
    loc = error["loc"]
    if error["type"].startswith("union_tag"):
        return (*loc, "type")
    if loc[-1:] == ("[key]",):
        return loc[:-1]
    if loc[:1] == ("brokers",):
        return (*loc[:2], *loc[3:])  # without the type of broker that pydantic puts in
    if loc[:1] != ("routes",) or loc in tree.places:
        return loc
    if len(loc) > 2 and ("defaults", *loc[2:]) in tree.places:
        return ("defaults", *loc[2:])
    return loc[:2] if loc[2:] == ("name",) else loc


def _text(error: ErrorDetails, written: object) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(error["loc"])
    if kind in _SAID:
        return _SAID[kind]
    if kind in _EXPECTED:
        expected = _EXPECTED[kind].format(**context).replace("'", "")  # pydantic quotes choices
        got = kind_of(written) if kind.endswith("_type") else shown(written)
        return f"expected {expected}; got {got}"
    return _unresolved(str(context.get("text", error["msg"])), written)


def _unresolved(text: str, written: object) -> str:
    """Return a message with the reference itself where it repeats what that stands for."""
    if isinstance(written, str) and "$" in written and "; got " in text:
        return f"{text.partition('; got ')[0]}; got {shown(written)}"
    return text


def _unknown_key(loc: KeyPath) -> str:
    known = sorted(set(_model_of(loc).model_fields) - {"name"})
    close = did_you_mean(str(loc[-1]), known)
    return f"unknown key{close}" if close else f"unknown key, expected one of {', '.join(known)}"


def _model_of(loc: KeyPath) -> type[BaseModel]:
    match loc:
        case (_,):
            return Config
        case ("brokers", _, kind, _):
            return _BROKERS[kind]
        case ("routes", _, _):
            return Route
    return _BLOCKS.get(loc[-2], TargetSettings)
