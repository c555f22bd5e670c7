"""Any order of crashes, redeliveries, deliveries and leases, against a plain model of a log.

A consumer reads a log from where it last settled, in batches of its own choice, and may crash
after any call. Whatever it does, each message is stored once, unless it was refused, and each key
ends as its last message says.
"""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duebridge.ports.source import LogPosition
from duebridge.store.server.connection import Connection
from duebridge.store.wire.leases import Claim
from tests.store.journal.key_history import KEYS, Event, KeyHistory, OneRowACall, Sent
from tests.support.desk import DAY_MS, LEASE_MS, Desk, acks, envelope

CALL_ROWS = 3
EXAMPLES = int(os.environ.get("DUEBRIDGE_EXAMPLES", "100"))
STORED = ("accepted", "replaced")


class Message(NamedTuple):
    key: str
    kind: str  # put, far: beyond the longest delay, cancel


class Step(NamedTuple):
    """A batch of so many messages, of which so many calls are made; deliver: or what happens."""

    kind: str
    size: int = 0
    calls: int = 0


MESSAGES = st.lists(
    st.builds(Message, st.sampled_from("xyz"), st.sampled_from(["put", "put", "far", "cancel"])),
    min_size=1,
    max_size=12,
)
STEPS = st.lists(
    st.one_of(
        st.builds(Step, st.just("batch"), st.integers(1, 6), st.integers(0, 4)),
        st.builds(Step, st.sampled_from(["deliver", "claim", "ack"])),
    ),
    max_size=14,
)


@dataclass
class Model:
    """What a log makes of the shard: by key the offset that is there, and who is leased."""

    messages: Sequence[Message]
    taken: int = -1
    living: dict[str, int] = field(default_factory=dict)
    leased: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    waiting: dict[int, bool] = field(default_factory=dict)
    """The offsets that were not stored, and whether a later one of their key was taken in."""
    stored: dict[int, int] = field(default_factory=dict)

    def put(self, offset: int) -> str:
        is_superseded = self.waiting.get(offset, False)
        if offset <= self.taken and offset not in self.waiting:
            return "duplicate"
        answer = self._judged(offset, is_superseded)
        self._take_in(offset, answer in STORED)
        if answer in STORED:
            self.living[self.messages[offset].key] = offset
            self.stored[offset] = self.stored.get(offset, 0) + 1
        return answer

    def _judged(self, offset: int, is_superseded: bool) -> str:
        message = self.messages[offset]
        if message.key in self.leased and not is_superseded:
            return "in_flight"
        if message.kind == "far":
            return "too_far"
        if is_superseded:
            return "duplicate"
        return "replaced" if message.key in self.living else "accepted"

    def cancel(self, offset: int) -> str:
        key = self.messages[offset].key
        if offset <= self.taken:
            return "unknown"
        self._take_in(offset, True)
        if key in self.leased:
            self.cancelled.add(key)
            return "in_flight"
        return "unknown" if self.living.pop(key, None) is None else "cancelled"

    def _take_in(self, offset: int, is_stored: bool) -> None:
        self.taken = max(self.taken, offset)
        key = self.messages[offset].key
        if not is_stored:
            self.waiting.setdefault(offset, False)
            return
        self.waiting.pop(offset, None)
        for other in self.waiting:
            if other < offset and self.messages[other].key == key:
                self.waiting[other] = True


class Log:
    """A log, its consumer, and the shard that it feeds."""

    def __init__(self, desk: Desk, messages: Sequence[Message]) -> None:
        self.desk, self.messages, self.model = desk, messages, Model(messages)
        self.settled = 0
        self.claim: Claim | None = None

    def calls_of(self, first: int, until: int) -> list[list[int]]:
        """The offsets of each call: a cancel is one of its own."""
        calls: list[list[int]] = []
        for offset in range(first, until):
            is_cancel = self.messages[offset].kind == "cancel"
            before = calls[-1] if calls else []
            is_full = len(before) in (0, CALL_ROWS)
            if is_cancel or is_full or self.messages[before[0]].kind == "cancel":
                calls.append([])
            calls[-1].append(offset)
        return calls

    def batch(self, size: int, most_calls: int) -> None:
        """Take a batch in; settle it if all its calls were made."""
        until = min(self.settled + size, len(self.messages))
        calls = self.calls_of(self.settled, until)
        for offsets in calls[:most_calls]:
            self.call(offsets)
        if most_calls >= len(calls):
            self.settled = until

    def call(self, offsets: Sequence[int]) -> None:
        places = [LogPosition("log", 1, offset) for offset in offsets]
        if self.messages[offsets[0]].kind == "cancel":
            answer = self.desk.store.cancel(self.messages[offsets[0]].key, places[0])
            assert answer == self.model.cancel(offsets[0])
            return
        answers = self.desk.schedule(
            *[self.envelope(offset) for offset in offsets],
            places=places,
            mode="replace",
            max_delay_ms=DAY_MS,
        )
        assert [each.status for each in answers] == [self.model.put(each) for each in offsets]

    def envelope(self, offset: int) -> Any:
        message = self.messages[offset]
        delay = "9d" if message.kind == "far" else "1s"
        return envelope(message.key, delay, body=b"%d" % offset)

    def happen(self, kind: str) -> None:
        """Lease what is due, or confirm what is leased; deliver: both."""
        if kind in ("claim", "deliver") and self.claim is None:
            self.desk.clock.advance(1000)
            self.desk.store.promote()
            self.claim = self.desk.store.claim(1000, 1000 * LEASE_MS)
            assert set(self.claim.ids) == set(self.model.living)
            self.model.leased = set(self.claim.ids)
        if kind in ("ack", "deliver") and self.claim is not None:
            self.desk.store.ack(acks(self.claim.token, *self.claim.ids))
            for key in self.model.leased:
                del self.model.living[key]
            self.model.leased, self.claim = set(), None

    def check(self) -> None:
        assert self.bodies() == {k: b"%d" % n for k, n in self.model.living.items()}
        entries = [each for each in self.desk.entries() if each.kind in STORED]
        assert sum(len(each.items) for each in entries) == sum(self.model.stored.values())
        assert set(self.model.stored.values()) <= {1}, "nothing is stored twice"

    def bodies(self) -> dict[str, bytes | None]:
        found = {key: self.desk.store.get(key) for key in "xyz"}
        return {key: each.content.body for key, each in found.items() if each and each.content}


@pytest.mark.parametrize("connection", ["redis"], indirect=True)
@settings(max_examples=150)
@given(messages=MESSAGES, steps=STEPS)
def test_log_is_stored_once_however_it_is_redelivered(
    connection: Connection, messages: list[Message], steps: list[Step]
) -> None:
    desk = Desk(connection, f"test-{secrets.token_hex(6)}")
    log = Log(desk, messages)
    try:
        for step in steps:
            if step.kind == "batch":
                log.batch(step.size, step.calls)
            else:
                log.happen(step.kind)
            log.check()
        finish(log)
        desk.check()
    finally:
        desk.delete()


def finish(log: Log) -> None:
    """Take the rest in, and all of it once more, as after a crash before anything was settled."""
    for _ in range(2):
        log.batch(len(log.messages), len(log.messages))
        log.check()
        log.settled = 0
    for offset, message in enumerate(log.messages):
        is_once = offset in log.model.stored
        assert is_once or message.kind != "put" or offset in log.model.waiting


KINDS = ["put", "put", "put", "late", "far", "same", "same", "cancel"]
SENT = st.lists(
    st.builds(Sent, st.sampled_from("xxx" + KEYS), st.sampled_from(KINDS)), min_size=2, max_size=9
)
HAPPENS = ["claim", "claim", "settle", "settle", "advance", "cancel", "crash", "replay", "shunt"]
SIZES = st.integers(0, 4)
EVENTS = st.lists(
    st.one_of(
        st.builds(Event, st.just("batch"), st.integers(1, 3), st.sampled_from([1, 2, 8, 8])),
        st.builds(Event, st.sampled_from(HAPPENS), SIZES, SIZES),
    ),
    min_size=4,
    max_size=20,
)
FIRST = [Sent("x", "put"), Sent("x", "put")]
BESIDE = [Event("batch", 1, 8), Event("claim", 4, 1), Event("batch", 1, 8)]
BEGINS = st.sampled_from(
    [
        BESIDE,  # the first message is on its way, and the second beside it
        [*BESIDE, Event("settle", 0, 0)],  # delivered
        [*BESIDE, Event("settle", 0, 9)],  # dead and unsure
        [*BESIDE, Event("claim", 4, 1)],  # both are on their way
        [*BESIDE, Event("cancel", 0, 0), Event("batch", 2, 8)],  # and cancelled
        [*BESIDE, Event("batch", 2, 8), Event("crash", 2), Event("advance", 3)],  # a week passes
    ]
)


@pytest.mark.parametrize("connection", ["redis"], indirect=True)
@settings(max_examples=EXAMPLES, derandomize=True)
@given(sent=SENT, begin=BEGINS, events=EVENTS, is_split=st.booleans())
def test_key_keeps_its_promises_whatever_is_beside_it(
    connection: Connection,
    sent: list[Sent],
    begin: list[Event],
    events: list[Event],
    is_split: bool,
) -> None:
    asked = OneRowACall(connection) if is_split else connection
    desk = Desk(asked, f"test-{secrets.token_hex(6)}")
    history = KeyHistory(desk, FIRST + sent)
    try:
        for event in begin + events:
            history.happen(event)
        history.finish()
    finally:
        desk.delete()
