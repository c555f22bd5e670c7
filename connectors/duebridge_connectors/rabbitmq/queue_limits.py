"""Reads a queue's limits of length and deliveries and its overflow policy without changing it.

AMQP shows no queue's arguments. But RabbitMQ refuses to declare a queue that exists with other
arguments, and names the first that differs and its value. So impossible arguments are declared: a
negative length, an overflow that does not exist. A queue that exists refuses them, one argument
after the other; a queue that does not exist is not created.

RabbitMQ 4 drops a quorum queue's message after 20 deliveries, and a channel that ends counts as one
of each message that it had in hand. Only 4 takes -1 for no limit: so one is declared that nothing
reaches.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pika.exceptions import ChannelClosedByBroker

LENGTH, LENGTH_BYTES, OVERFLOW = "x-max-length", "x-max-length-bytes", "x-overflow"
DROP_HEAD = "drop-head"
TYPE, QUORUM, DELIVERIES = "x-queue-type", "quorum", "x-delivery-limit"
MOST_DELIVERIES: Final = 1_000_000_000
_LAST = "x-queue-leader-locator"

_IMPOSSIBLE: dict[str, object] = {LENGTH: -1, LENGTH_BYTES: -1, OVERFLOW: "none-such"}
# No version makes a queue with this locator, which is compared last; 3.10 would with that limit.
_IMPOSSIBLE_QUORUM: dict[str, object] = {TYPE: QUORUM, DELIVERIES: -2, _LAST: "none-such"}
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

    def __init__(self, arguments: Mapping[str, object]) -> None:
        self.flags = {"durable": True, "auto_delete": False}
        self.arguments = dict(arguments)
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
    probe = _Probe(_IMPOSSIBLE)
    if not _is_told(connection, queue, probe, {OVERFLOW}):
        return None
    given = {name: value for name in _IMPOSSIBLE if (value := probe.seen.get(name))}
    return Limits(probe.flags["durable"], LENGTH not in probe.seen, given)


def read_delivery_limit(connection: Any, queue: str) -> str | None:
    """Return a quorum queue's declared delivery limit, empty for none; None if that is not known.

    Of a queue of another type it is None. Raises what pika does when the connection is lost.
    """
    probe = _Probe(_IMPOSSIBLE_QUORUM)
    is_told = _is_told(connection, queue, probe, {TYPE, DELIVERIES, _LAST})
    return (probe.seen[DELIVERIES] or "") if is_told and DELIVERIES in probe.seen else None


def _is_told(connection: Any, queue: str, probe: _Probe, wanted: set[str]) -> bool:
    """Declare until one of these arguments is told; return False where RabbitMQ says other things.

    A stream accepts any x-max-length: there is no more to be told then.
    """
    while not wanted & probe.seen.keys():
        refusal = _refusal(connection, queue, probe)
        if refusal is None:
            break
        match = _DIFFERS.fullmatch(refusal)
        if match is None or not probe.apply(match):
            return False
    return True


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
