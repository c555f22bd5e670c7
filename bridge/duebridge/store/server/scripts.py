"""Loads the scripts: each Lua file with its included parts put in.

A script names its parts in one comment line, `-- @include prelude poll`; each is a file of
`lua/shared`. The name of a script is its file's name.
"""

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

_INCLUDE = re.compile(r"^-- @include (.+)$", re.MULTILINE)


class Script(NamedTuple):
    """A script ready to be sent: EVALSHA by `sha`, or SCRIPT LOAD of `source`."""

    name: str
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    """Return a script by name; raises `FileNotFoundError` for an unknown one."""
    source = files("duebridge").joinpath("lua").joinpath(f"{name}.lua").read_text(encoding="utf-8")
    return _of(name, _INCLUDE.sub(lambda match: _parts(match[1].split()), source))


@cache
def sharded(called: Script) -> Script:
    """Return a script for a Cluster: what it publishes stays in its slot, not on every node."""
    return _of(called.name, called.source.replace("'PUBLISH'", "'SPUBLISH'"))


def _of(name: str, source: str) -> Script:
    return Script(name, source, sha1(source.encode(), usedforsecurity=False).hexdigest())


def _parts(names: list[str]) -> str:
    shared = files("duebridge").joinpath("lua").joinpath("shared")
    return "\n".join(shared.joinpath(f"{name}.lua").read_text(encoding="utf-8") for name in names)


def names() -> list[str]:
    """Return the names of the scripts of shards: all but those of `lua/registry`."""
    found = (entry.name for entry in files("duebridge").joinpath("lua").iterdir())
    return sorted(name.removesuffix(".lua") for name in found if name.endswith(".lua"))
