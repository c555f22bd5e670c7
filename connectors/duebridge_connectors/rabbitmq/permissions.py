"""The least permissions to deliver to exchanges, as commands for `rabbitmqctl`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from shlex import join
from urllib.parse import unquote, urlsplit

from duebridge.envelope import Target

DEFAULT_EXCHANGE = "amq.default"  # how permissions name the exchange ""
_WILDCARDS = {"*": ".*", "?": "."}


def permission_commands(settings: Mapping[str, object], targets: Sequence[Target]) -> list[str]:
    """Return the command: write to the exchanges, configure and read nothing."""
    names = [target.exchange or DEFAULT_EXCHANGE for target in targets]
    return [grant(settings, write=names)] if names else []


def grant(
    settings: Mapping[str, object],
    configure: Iterable[str] = (),
    write: Iterable[str] = (),
    read: Iterable[str] = (),
) -> str:
    """Return the command that grants these names to the user of the url."""
    url = urlsplit(str(settings.get("url", "")))
    user = unquote(url.netloc.rpartition("@")[0].partition(":")[0])
    vhost = unquote(url.path.removeprefix("/")) or "/"
    patterns = map(_any_of, (configure, write, read))
    return join(("rabbitmqctl", "set_permissions", "-p", vhost, user or "USER", *patterns))


def _any_of(names: Iterable[str]) -> str:
    patterns = "|".join(map(_pattern, dict.fromkeys(names)))
    return f"^({patterns})$" if patterns else "^$"


def _pattern(name: str) -> str:
    return "".join(_WILDCARDS.get(each) or re.escape(each) for each in name)
