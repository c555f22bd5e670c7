"""Loads the scripts, each Lua file with its included parts put in, and packs their calls.

A script names its parts in one comment line, `-- @include prelude poll`; each is a file of
`lua/shared`. The name of a script is its file's name.
"""

import re
from collections.abc import Callable
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, NamedTuple

from redis.connection import HiredisRespSerializer
from redis.exceptions import NoScriptError
from redis.utils import HIREDIS_AVAILABLE

if HIREDIS_AVAILABLE:
    import hiredis

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


def run_script(
    called: Script, rest: tuple[Any, ...], execute: Callable[..., Any], load: Callable[[], object]
) -> Any:
    """Run a script by its digest; have a server that does not know it `load` it first.

    A server that was restarted, promoted or flushed, or that has just got the slot, refuses the
    digest without running anything. `rest` is what follows the digest in EVALSHA.
    """
    try:
        return execute("EVALSHA", called.sha, *rest)
    except NoScriptError:
        load()
    try:
        return execute("EVALSHA", called.sha, *rest)
    except NoScriptError:  # flushed again, or a slot on its way: send it whole
        return execute("EVAL", called.source, *rest)


def _of(name: str, source: str) -> Script:
    return Script(name, source, sha1(source.encode(), usedforsecurity=False).hexdigest())


def _parts(names: list[str]) -> str:
    shared = files("duebridge").joinpath("lua").joinpath("shared")
    return "\n".join(shared.joinpath(f"{name}.lua").read_text(encoding="utf-8") for name in names)


def names() -> list[str]:
    """Return the names of the scripts of shards: all but those of `lua/registry`."""
    found = (entry.name for entry in files("duebridge").joinpath("lua").iterdir())
    return sorted(name.removesuffix(".lua") for name in found if name.endswith(".lua"))


class ScriptPacker(HiredisRespSerializer):
    """redis-py's packer, but for scripts: their arguments are bytes, text and numbers as they are.

    redis-py looks each argument over in Python, which takes half of the time of packing a call.
    """

    def pack(self, *args: Any) -> list[bytes]:
        """Return a command as it is sent."""
        if args[0] == "EVALSHA":
            return [hiredis.pack_command(args)]
        return super().pack(*args)  # type: ignore[no-any-return]


def script_packer() -> ScriptPacker | None:
    """Return the packer; None without hiredis, where redis-py packs by itself."""
    return ScriptPacker() if HIREDIS_AVAILABLE else None
