"""Resolves `${VAR}`, `${VAR:-default}` and `${file:/path}` in values, and masks secrets.

`$$` is a literal `$`. As in a shell, the default applies if the variable is unset or empty. A
file's trailing newline is stripped. No message contains a resolved value.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from duebridge.errors import ConfigError

KeyPath: TypeAlias = tuple[str | int, ...]

MAX_FILE_BYTES = 64 * 1024
_REFERENCE = re.compile(
    r"\$(?:(?P<dollar>\$)"
    r"|\{file:(?P<file>/[^{}$\x00-\x1f]*)\}"
    r"|\{(?P<variable>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}$]*))?\})"
)


def check_references(text: str) -> None:
    """Raise `ConfigError` if a `$` in `text` is no reference; reads no variable and no file."""
    if "$" in _REFERENCE.sub("", text):
        raise ConfigError(
            "expected ${VAR}, ${VAR:-default} or ${file:/path}, and $$ where $ itself is meant"
        )


def resolve(text: str) -> str:
    """Return `text` with every reference replaced by its current value.

    Raises `ConfigError`, which names the variable or file that is missing.
    """
    check_references(text)
    return _REFERENCE.sub(_value, text)


def is_reference(text: str) -> bool:
    """Return whether `text` is exactly one reference."""
    match = _REFERENCE.fullmatch(text)
    return match is not None and not match["dollar"]


def referenced_files(text: str) -> set[str]:
    """Return the paths in all `${file:/path}` of a text."""
    return {match["file"] for match in _REFERENCE.finditer(text) if match["file"]}


def take_out(text: str, stand_in: Callable[[str], str]) -> str:
    """Return `text` with every reference, but no `$$`, replaced by its stand-in."""
    return _REFERENCE.sub(lambda match: match[0] if match["dollar"] else stand_in(match[0]), text)


def with_default(reference: str, form: Callable[[str], str]) -> str:
    """Return a reference with its default, if any, transformed by `form`."""
    head, has_default, default = reference.removesuffix("}").partition(":-")
    return f"{head}:-{form(default)}}}" if has_default else reference


def map_leaves(path: KeyPath, value: object, change: Callable[[KeyPath, Any], object]) -> Any:
    """Return `value`, which is at `path`, with each leaf of its lists and mappings changed."""
    if isinstance(value, Mapping):
        return {key: map_leaves((*path, key), inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [map_leaves((*path, place), inner, change) for place, inner in enumerate(value)]
    return change(path, value)


def resolve_at(place: str, value: object) -> object:
    """Return `value` with all texts in it resolved, at any depth of lists and mappings.

    Raises `ConfigError`, which begins with the place: `brokers.billing.url`.
    """

    def resolved(path: KeyPath, leaf: object) -> object:
        try:
            return resolve(leaf) if isinstance(leaf, str) else leaf
        except ConfigError as error:
            raise ConfigError(f"{'.'.join(map(str, path))}: {error}") from None

    return map_leaves((place,), value, resolved)


def resolve_known(value: object) -> object:
    """Return `value` with its texts resolved, without the entries whose reference is missing.

    Of a text alone that is missing, None.
    """
    if isinstance(value, Mapping):
        known = {key: resolve_known(inner) for key, inner in value.items()}
        return {key: inner for key, inner in known.items() if inner is not None}
    if isinstance(value, list):
        return [inner for inner in map(resolve_known, value) if inner is not None]
    if not isinstance(value, str):
        return value
    try:
        return resolve(value)
    except ConfigError:
        return None


def unset_variables(value: object) -> set[str]:
    """Return the referenced variables that are unset and have no default."""
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
        pass  # raised below: this exception contains the secret
    raise ConfigError(f"file {path}: expected UTF-8 text")


MASK = "***"
_SECRET_NAME = re.compile(
    r"pas|p(s|ass)?wd|secret|token|credential|jaas|auth|\.pem$|ssl_options"
    r"|key(?!.*(location|file|path))|sasl.*config",
    re.IGNORECASE,
)
_SECRET_INSIDE = re.compile(
    r"(pas|p(s|ass)?wd|secret|token|credential)\w*['\"]?\s*[=:]", re.IGNORECASE
)
# Anchored at a parameter's start: otherwise matching a long text takes quadratic time.
_PARAMETER = re.compile(r"(?<![^?&;])(?P<name>[^?&;=]*+)=(?P<value>[^&;]*)")
_FIRST, _LAST = 0xE000, 0xF8FF  # private-use characters that stand for references


def masked_secret(value: object) -> str:
    """Return a mask for a secret value; a reference stays, its default masked."""
    if isinstance(value, str) and is_reference(value):
        return with_default(value, lambda _: MASK)
    return MASK


def masked_option(name: str, value: object) -> object:
    """Return a client option, masked if its name or value looks secret."""
    if _SECRET_NAME.search(name):
        return masked_secret(value)
    if not isinstance(value, str):
        return value
    return MASK if _SECRET_INSIDE.search(value) else masked_url(value)


def masked_setting(keys: Sequence[str], value: object) -> object:
    """Return a broker setting, masked if secret; nested keys are client options."""
    if len(keys) > 1 or _SECRET_NAME.search(keys[0]):
        return masked_option(keys[-1], value)
    return masked_url(value) if isinstance(value, str) else value


def masked_url(text: str) -> str:
    """Return a URL without its password and without secret parameters."""
    references: list[str] = []

    def stand_in(reference: str) -> str:
        references.append(reference)
        return chr(_FIRST + len(references) - 1)

    is_ambiguous = any(_FIRST <= ord(each) <= _LAST for each in text)
    bare = take_out(text, stand_in)
    if is_ambiguous or len(references) > _LAST - _FIRST:
        return MASK
    return _put_back(_masked(bare, references), references)


def _masked(bare: str, references: list[str]) -> str:
    """Return a URL without secrets; references outside secrets stay stand-in characters."""
    before, at, after = bare.rpartition("@")
    scheme, slashes, userinfo = before.partition("://")
    if not slashes:
        scheme, userinfo = "", before
    if "?" in userinfo:  # is the @ in a password, or in a parameter?
        return f"{scheme}{slashes}{MASK}"
    user, colon, password = userinfo.partition(":")
    if not colon:  # redis://secret@host: a user or a password
        user, password = "", userinfo

    def secret(piece: str) -> str:
        return masked_secret(references[ord(piece) - _FIRST] if _stands_in(piece) else piece)

    def parameter(match: re.Match[str]) -> str:
        is_secret = _SECRET_NAME.search(unquote(match["name"]))
        return f"{match['name']}={secret(match['value'])}" if is_secret else match[0]

    shown = f"{scheme}{slashes}{user}{colon}{secret(password)}@" if at else ""
    return shown + _PARAMETER.sub(parameter, after)


def _put_back(shown: str, references: list[str]) -> str:
    return "".join(
        with_default(references[ord(each) - _FIRST], masked_url) if _stands_in(each) else each
        for each in shown
    )


def _stands_in(piece: str) -> bool:
    return len(piece) == 1 and _FIRST <= ord(piece) <= _LAST
