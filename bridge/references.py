"""`${VAR}`, `${VAR:-default}` and `${file:/path}` in values of the configuration; `$$` is one `$`.

A default is taken where the variable is unset or empty, as a shell does. A file's text is taken
without the newline at its end. What a reference stands for is never part of a message.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from bridge.errors import ConfigError

MAX_FILE_BYTES = 64 * 1024
_REFERENCE = re.compile(
    r"\$(?:(?P<dollar>\$)"
    r"|\{file:(?P<file>/[^{}$\x00-\x1f]*)\}"
    r"|\{(?P<variable>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}$]*))?\})"
)


def check_references(text: str) -> None:
    """Raise `ConfigError` where a `$` in `text` is no reference; reads no variable and no file."""
    if "$" in _REFERENCE.sub("", text):
        raise ConfigError(
            "expected ${VAR}, ${VAR:-default} or ${file:/path}, and $$ where $ itself is meant"
        )


def resolve(text: str) -> str:
    """Return `text` with every reference replaced by what it stands for now.

    Raises `ConfigError`, which names the variable or file that is missing.
    """
    check_references(text)
    return _REFERENCE.sub(_value, text)


def is_reference(text: str) -> bool:
    """Whether the whole of `text` is one reference, and nothing beside it."""
    match = _REFERENCE.fullmatch(text)
    return match is not None and not match["dollar"]


def take_out(text: str, stand_in: Callable[[str], str]) -> str:
    """Return `text` with every reference, and no `$$`, replaced by what stands in for it."""
    return _REFERENCE.sub(lambda match: match[0] if match["dollar"] else stand_in(match[0]), text)


def with_default(reference: str, form: Callable[[str], str]) -> str:
    """Return a reference whose default, if it has one, is in another form."""
    head, has_default, default = reference.removesuffix("}").partition(":-")
    return f"{head}:-{form(default)}}}" if has_default else reference


def resolve_at(place: str, value: object) -> object:
    """Return `value`, text or whatever lists and mappings hold of it resolved.

    Raises `ConfigError`, which begins with the place: `brokers.billing.url`.
    """
    if isinstance(value, Mapping):
        return {key: resolve_at(f"{place}.{key}", inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [resolve_at(f"{place}.{number}", inner) for number, inner in enumerate(value)]
    if not isinstance(value, str):
        return value
    try:
        return resolve(value)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None


def unset_variables(value: object) -> set[str]:
    """Return the variables that have no value now and no default, out of a whole configuration."""
    if isinstance(value, Mapping):
        return set().union(*map(unset_variables, value.values()))
    if isinstance(value, list):
        return set().union(*map(unset_variables, value))
    found = _REFERENCE.finditer(value) if isinstance(value, str) else ()
    return {
        match["variable"]
        for match in found
        if match["variable"] and match["default"] is None and match["variable"] not in os.environ
    }


def _value(match: re.Match[str]) -> str:
    if match["dollar"]:
        return "$"
    if match["file"]:
        return _text_of(match["file"])
    value = os.environ.get(match["variable"])
    if match["default"] is not None:
        return value or match["default"]
    if value is None:
        raise ConfigError(f"variable {match['variable']}: not set")
    return value


def _text_of(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"file {path}: cannot be read: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"file {path}: expected at most {MAX_FILE_BYTES} bytes")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        pass  # raised below: the error in flight holds the secret
    raise ConfigError(f"file {path}: expected UTF-8 text")
