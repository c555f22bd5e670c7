"""A process of the state machine: what it has in memory, which a crash takes, and its requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from duebridge.store.connection import Argument, Connection, Reply
from duebridge.store.poll import Poll
from duebridge.store.scripts import Script
from tests.store.calls import Call, Held

Sent: TypeAlias = Sequence[Argument]


@dataclass
class Asked:
    """One request; `sent` is what went out, once it has run."""

    call: Call
    number: str
    sent: Sent = ()
    answer: Any = None


@dataclass
class Process:
    """A worker, a producer or an operator."""

    claims: list[Held] = field(default_factory=list)
    shunts: list[Held] = field(default_factory=list)
    unanswered: list[Asked] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        return not (self.claims or self.shunts or self.unanswered)


class Carried(NamedTuple):
    """What came of a request: the answer, the bytes that went out, the poll if there was one."""

    answer: Any
    sent: Sent
    poll: Poll | None


class Wire(Connection):
    """A connection that can send an earlier request again: the same bytes, at the time of now."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.client)
        self._again: Sent = ()
        self._sent: Sent = ()
        self._head: Any = None

    def carry(self, ask: Callable[[], Any], again: Sent) -> Carried:
        """Let a call be made, as it went out before if it did."""
        self._again = again
        answer = ask()
        self._again = ()
        poll = Poll(*self._head) if isinstance(self._head, list) else None
        return Carried(answer, self._sent, poll)

    def run(
        self,
        called: Script,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        repeat_for_s: float = 0.0,
    ) -> Reply:
        self._sent = (arguments[0], *self._again[1:]) if self._again else arguments
        value = super().run(called, keys, self._sent).value
        self._head = value[0]
        return Reply(value, repeated=bool(self._again))
