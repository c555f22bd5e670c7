"""The least permissions to deliver to exchanges, as commands for `rabbitmqctl`."""

import re
from collections.abc import Mapping, Sequence
from shlex import join
from urllib.parse import unquote, urlsplit

from duebridge.envelope import Target

DEFAULT_EXCHANGE = "amq.default"  # how permissions name the exchange ""
_WILDCARDS = {"*": ".*", "?": "."}


def permission_commands(settings: Mapping[str, object], targets: Sequence[Target]) -> list[str]:
    """Return the command: write to the exchanges, configure and read nothing."""
    url = urlsplit(str(settings.get("url", "")))
    user = unquote(url.netloc.rpartition("@")[0].partition(":")[0])
    vhost = unquote(url.path.removeprefix("/")) or "/"
    names = dict.fromkeys(target.exchange or DEFAULT_EXCHANGE for target in targets)
    if not names:
        return []
    write = f"^({'|'.join(map(_pattern, names))})$"
    words = ("rabbitmqctl", "set_permissions", "-p", vhost, user or "USER", "^$", write, "^$")
    return [join(words)]


def _pattern(name: str) -> str:
    """Return a glob as a regular expression."""
    return "".join(_WILDCARDS.get(each) or re.escape(each) for each in name)
