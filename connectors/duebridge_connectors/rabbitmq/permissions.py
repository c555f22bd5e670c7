"""The least permissions to deliver to exchanges and to take messages in, for `rabbitmqctl`.

Imports no client.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import join
from urllib.parse import unquote, urlsplit

from duebridge.envelope import Target
from duebridge.ports.source import SourcePlan
from duebridge_connectors.rabbitmq.source.models import (
    due_exchange,
    expired_target,
    own_dead_letter_queue,
)

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


REPLACES = "# a command replaces the user's former permissions: to deliver too, merge the patterns"
DECLARES = "# to declare (`duebridge intake declare`), for that time only:"


def source_permission_commands(
    settings: Mapping[str, object], plans: Sequence[SourcePlan]
) -> list[str]:
    """Return the commands: read the queues, write what is due and dead letters of these intakes."""
    if not plans:
        return []
    queues = [str(plan.source["queue"]) for plan in plans]
    lines = [REPLACES, grant(settings, write=_written(plans), read=queues)]
    if declared := [str(plan.declare["exchange"]) for plan in plans if plan.declare is not None]:
        due = [due_exchange(name) for name in declared]
        letters = [name for plan in plans if (name := own_dead_letter_queue(plan))]
        made = [*declared, *due, *queues, *letters]
        # A queue with a dead-letter exchange also takes the rights to read it and to write there.
        expired = [
            each.exchange or DEFAULT_EXCHANGE for plan in plans if (each := expired_target(plan))
        ]
        read = [*declared, *queues] if expired else declared
        line = grant(settings, configure=made, write=[*due, *queues, *expired], read=read)
        lines += [DECLARES, f"# {line}"]
    return lines


def _written(plans: Iterable[SourcePlan]) -> Iterator[str]:
    for plan in plans:
        if plan.declare is not None:
            yield due_exchange(str(plan.declare["exchange"]))
        if plan.dead_letter is not None and plan.dead_letter.broker == plan.broker:
            yield plan.dead_letter.exchange or DEFAULT_EXCHANGE
