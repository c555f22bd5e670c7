"""The bench of the state machine: it makes a call on the store and on the model, and looks.

A subclass has the deeds, each a method that may be done when its condition holds. They are one rule
to Hypothesis, which leaves out half of many rules in an example; then little happens to envelopes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import count
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from duebridge.config.durability import ReplicaWait
from duebridge.store.server.connection import Argument, Connection, Reply
from duebridge.store.server.scripts import Script
from duebridge.store.wire.poll import Poll
from tests.store.properties.calls import Call, Held
from tests.store.properties.ledger import Ledger
from tests.store.properties.model import Model
from tests.store.properties.steps import check_agreement, check_step
from tests.support.desk import Desk
from tests.support.model.invariants import poll_of
from tests.support.redis.least import admin_of

FINE, REQUEST_LOST, REPLY_LOST = "fine", "request lost", "reply lost"
FATES = st.sampled_from([FINE, FINE, FINE, REQUEST_LOST, REPLY_LOST])
PROCESSES = 3
Sent: TypeAlias = Sequence[Argument]

Method = TypeVar("Method", bound=Callable[..., None])


class Deed(NamedTuple):
    """What may be done next: how often beside others, when, and with what but the usual."""

    weight: int
    when: Callable[[Any], Any]
    drawn: dict[str, st.SearchStrategy[Any]]


def deed(
    weight: int, when: Callable[[Any], Any] = lambda machine: True, **drawn: st.SearchStrategy[Any]
) -> Callable[[Method], Method]:
    """Mark a method as a deed; its other arguments are drawn as the machine draws their names."""

    def mark(method: Method) -> Method:
        method.deed = Deed(weight, when, drawn)  # type: ignore[attr-defined]
        return method

    return mark


def within(*states: str) -> Callable[[Any], bool]:
    """A condition: an envelope is in one of these states."""
    return lambda machine: any(machine.model.within(state) for state in states)


def while_any(has: str) -> Callable[[Any], bool]:
    """A condition: a process has something of this name."""
    return lambda machine: any(getattr(each, has) for each in machine.processes)


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
        self.admin = admin_of(connection)
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
        wanted: ReplicaWait | None = None,
    ) -> Reply:
        self._sent = (arguments[0], *self._again[1:]) if self._again else arguments
        value = super().run(called, keys, self._sent, wanted=wanted).value
        self._head = value[0]
        return Reply(value, repeated=bool(self._again))


class Machine(RuleBasedStateMachine):
    """Processes, a store, its model and the ledger of what happened to its envelopes."""

    DRAWN: ClassVar[dict[str, st.SearchStrategy[Any]]]

    def __init__(self, desk: Desk, wire: Wire) -> None:
        super().__init__()
        self.desk, self.wire, self.store = desk, wire, desk.store
        self.model, self.ledger = Model(desk.clock()), Ledger(desk.clock())
        self.model.generation = desk.generation()
        self.processes = [Process() for _ in range(PROCESSES)]
        self.numbers = count(1)
        self.found = desk.snapshot()
        methods = vars(type(self)).items()
        self.deeds = {name: each.deed for name, each in methods if hasattr(each, "deed")}

    def drawn(self, name: str) -> st.SearchStrategy[dict[str, Any]]:
        """What a deed is done with."""
        ways = {**self.DRAWN, **self.deeds[name].drawn}
        wanted = signature(getattr(self, name)).parameters
        return st.fixed_dictionaries({each: ways[each] for each in wanted})

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        possible = [name for name, each in self.deeds.items() if each.when(self)]
        name = data.draw(
            st.sampled_from([each for each in possible for _ in range(self.deeds[each].weight)])
        )
        getattr(self, name)(**data.draw(self.drawn(name)))

    def one_with(self, has: str, which: int) -> Process:
        """Return one of the processes that have something of this name."""
        those = [each for each in self.processes if getattr(each, has)]
        return those[which % len(those)]

    def ask(self, process: Process, call: Call, fate: str) -> Any:
        """Let a process call; returns what it makes of the answer, None where it gets none."""
        return self.send(process, Asked(call, str(next(self.numbers))), fate)

    def send(self, process: Process, asked: Asked, fate: str) -> Any:
        made = None if fate == REQUEST_LOST else self.run(asked)
        if fate == FINE:
            return made
        if asked.call.is_repeated:
            process.unanswered.append(asked)
        return None

    def run(self, asked: Asked) -> Any:
        """Run a call on the store and on the model; a repeated one must not do anything twice."""
        call, before = asked.call, self.found
        has_run, is_kept = bool(asked.sent), self.model.recall(f"c{asked.number}") is not None
        answer, asked.sent, poll = self.wire.carry(lambda: call.ask(self.store), asked.sent)
        answered = call.read(answer)
        self.model.few_expired = 8
        assert answered == call.expect(self.model, asked.number, answer)
        made = None if is_kept else call.told(self.ledger, answer)
        self.look()
        assert poll is None or poll == poll_of(self.found, self.desk.clock())
        if is_kept:
            assert answered == asked.answer, f"{call.name} answers another word when repeated"
        if is_kept or (has_run and call.is_settling):
            assert self.found == before, f"{call.name} changes something when repeated"
        asked.answer = answered
        return made

    def look(self) -> None:
        """Assert everything that must hold between two calls."""
        before, self.found = self.found, self.desk.check()
        now = self.desk.clock()
        check_step(before, self.found, now)
        self.model.generation = int(self.found["meta"].get(b"generation", 0))
        check_agreement(self.found, self.model)
        self.ledger.check({name.decode() for name in self.found["envelopes"]})

    def pass_time(self, ms: int) -> None:
        self.desk.clock.advance(ms)
        self.model.now = self.ledger.now = self.desk.clock()

    def teardown(self) -> None:
        self.desk.delete()
