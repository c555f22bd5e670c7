"""What a Dockerfile's last stage says of the image: its files' origin, environment and command.

So it is said once, for `docker build` and for the build without Docker. Only the few instructions
that such a stage needs are understood; another one is refused.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parent


class Recipe(NamedTuple):
    """The last stage: which directories of the build stage become layers, and the settings."""

    copied: list[str]
    config: dict[str, Any]


def instructions(text: str) -> list[tuple[str, str]]:
    """Return a Dockerfile's instructions, comments removed and lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = [line.strip().partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word.upper(), rest.strip()) for word, _, rest in found]


def recipe(image: str, arguments: Mapping[str, str]) -> Recipe:
    """Read the last stage of an image's Dockerfile; `arguments` replace its ARGs' defaults."""
    found = instructions((FOLDER / f"{image}.Dockerfile").read_text("utf-8"))
    last = max(place for place, (word, _) in enumerate(found) if word == "FROM")
    read = Recipe([], {"Env": {}, "Labels": {}, "ExposedPorts": {}})
    known: dict[str, str] = {}
    for word, rest in found[last + 1 :]:
        if word == "ARG":
            name, _, default = rest.partition("=")
            known[name] = arguments.get(name, default)
        else:
            _take(read, word, _replaced(rest, known))
    return read


def _replaced(text: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: known[found[1]], text)


def _take(read: Recipe, word: str, rest: str) -> None:
    match word:
        case "ENV" | "LABEL":
            pairs = dict(each.split("=", 1) for each in shlex.split(rest))
            read.config["Env" if word == "ENV" else "Labels"] |= pairs
        case "ENTRYPOINT" | "CMD":
            read.config[word.title()] = json.loads(rest)
        case "USER" | "STOPSIGNAL":
            read.config[{"USER": "User", "STOPSIGNAL": "StopSignal"}[word]] = rest
        case "WORKDIR":
            read.config["WorkingDir"] = rest
        case "EXPOSE":
            read.config["ExposedPorts"][f"{rest}/tcp"] = {}
        case "COPY":
            read.copied.append(_copied(rest))
        case _:
            raise SystemExit(f"{word}: expected one of what recipe.py understands")


def _copied(rest: str) -> str:
    found = re.fullmatch(r"--from=build /image/(\w+)/? /", rest)
    if found is None:
        raise SystemExit(f"COPY: expected --from=build /image/NAME /; got {rest}")
    return found[1]
