"""Reads a queue's length limits and overflow policy without changing it.

AMQP shows no queue's arguments. But RabbitMQ refuses to declare a queue that exists with other
arguments, and names the first that differs and its value. So impossible arguments are declared: a
negative length, an overflow that does not exist. A queue that exists refuses them, one argument
after the other; a queue that does not exist is not created.
"""

import re
from typing import Any, NamedTuple

from pika.exceptions import ChannelClosedByBroker

LENGTH, LENGTH_BYTES, OVERFLOW = "x-max-length", "x-max-length-bytes", "x-overflow"
DROP_HEAD = "drop-head"

_IMPOSSIBLE: dict[str, object] = {LENGTH: -1, LENGTH_BYTES: -1, OVERFLOW: "none-such"}
_DIFFERS = re.compile(
    r"PRECONDITION_FAILED - inequivalent arg '(?P<name>[^']+)' for queue .*"
    r"but current is (?:none|(?:the value )?'(?P<value>.*?)'(?: of type '(?P<type>\w+)')?)$",
    re.DOTALL,
)


class Limits(NamedTuple):
    """The queue's declared arguments as text, without limits that a policy sets.

    A stream has no `x-max-length`: it is not probed for one, and never drops by it.
    """

    is_durable: bool
    is_stream: bool
    given: dict[str, str]

    @property
    def drops_oldest(self) -> str:
        """The limit at which it drops its oldest messages; empty if it does not."""
        if self.is_stream or self.given.get(OVERFLOW, DROP_HEAD) != DROP_HEAD:
            return ""
        limits = [
            f"{name} {self.given[name]}" for name in (LENGTH, LENGTH_BYTES) if name in self.given
        ]
        return ", ".join(limits)


class _Probe:
    """The next declaration, and the arguments that refusals have revealed."""

    def __init__(self) -> None:
        self.flags = {"durable": True, "auto_delete": False}
        self.arguments = dict(_IMPOSSIBLE)
        self.seen: dict[str, str | None] = {}

    def apply(self, match: "re.Match[str]") -> bool:
        """Apply a refusal; return whether it revealed a new argument."""
        name, value = match["name"], match["value"]
        if name in self.seen:
            return False
        self.seen[name] = value
        if name in self.flags:
            self.flags[name] = value == "true"
        elif value is None:
            del self.arguments[name]
        else:
            self.arguments[name] = _typed(value, match["type"])
        return True


def read_limits(connection: Any, queue: str) -> Limits | None:
    """Return a queue's declared limits; None if this user may not read them.

    Raises what pika does when the connection is lost.
    """
    probe = _Probe()
    while OVERFLOW not in probe.seen:
        refusal = _refusal(connection, queue, probe)
        if refusal is None:  # a stream accepts any x-max-length
            break
        match = _DIFFERS.fullmatch(refusal)
        if match is None or not probe.apply(match):
            return None
    given = {name: value for name in _IMPOSSIBLE if (value := probe.seen.get(name))}
    return Limits(probe.flags["durable"], LENGTH not in probe.seen, given)


def _refusal(connection: Any, queue: str, probe: _Probe) -> str | None:
    channel = connection.channel()
    try:
        channel.queue_declare(queue, arguments=probe.arguments, **probe.flags)
    except ChannelClosedByBroker as error:
        return str(error.reply_text)
    channel.close()
    return None


def _typed(value: str, kind: str | None) -> object:
    if kind == "bool":
        return value == "true"
    return int(value) if re.fullmatch("-?[0-9]+", value) and kind != "longstr" else value
