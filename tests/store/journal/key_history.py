"""One key's messages in a log, taken in as an intake that replaces does, and what became of them.

No answer is predicted. Held against the store is what producers and brokers may see: a cancel
that answered `cancelled` binds all that was stored for its key before, a message that comes again
changes nothing, and the last message of a key is delivered, dead or there.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, NamedTuple

from duebridge.ports.source import LogPosition
from duebridge.store.server.connection import Connection
from duebridge.store.server.scripts import Script, script
from duebridge.store.wire.leases import Claim
from duebridge.store.wire.replies import Entry, ScheduleReply
from tests.support.desk import DAY_MS, LEASE_MS, NOW_MS, Desk, acks, burial, envelope, retrying

CALL_ROWS = 3
KEYS = "xy"
STORED = ("accepted", "replaced", "duplicate")
EFFECTIVE = ("cancelled", "in_flight")
KNOWN_FOR_MS = 7 * DAY_MS  # after it is due, what is beside a key is no longer reached by it
FAR_MS = NOW_MS + 11 * DAY_MS
READ_AT_MOST = "math.min(tonumber(budget), MAX_BYTES)"  # lua/shared/record.lua
LEASE_OF_A_SHUNT = 1000


class OneRowACall(Connection):
    """Its scripts read one record a call, as where each is larger than a call may read."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.client)
        assert READ_AT_MOST in script("schedule").source

    def form_of(self, called: Script) -> Script:
        source = called.source.replace(READ_AT_MOST, "-1")
        sha = sha1(source.encode(), usedforsecurity=False).hexdigest()
        return super().form_of(Script(called.name, source, sha))


class Sent(NamedTuple):
    """A message of a key."""

    key: str
    kind: str  # put: due in 1 s, late: in 5 days, far: refused at first, same: as before; cancel


class Event(NamedTuple):
    """What happens next; `size` and `part` say how much of it."""

    kind: str
    size: int = 0
    part: int = 0


@dataclass
class Fate:
    """What became of a body: who may no longer see it, who has, and when it was due."""

    due_at_ms: int
    is_banned: bool = False
    is_excused: bool = False
    is_delivered: bool = False


@dataclass
class KeyHistory:
    """A log, its consumer, two workers, a producer and an operator."""

    desk: Desk
    messages: Sequence[Sent]
    settled: int = 0
    done: set[int] = field(default_factory=set)
    fates: dict[bytes, Fate] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    bodies: dict[tuple[bytes, str], bytes] = field(default_factory=dict)

    # ── the intake ──────────────────────────────────────────────────────────────────────────────

    def body(self, offset: int) -> bytes:
        key, kind = self.messages[offset]
        earlier = [n for n in range(offset) if self.messages[n] == (key, "put")]
        return b"%d" % (earlier[-1] if kind == "same" and earlier else offset)

    def envelope(self, offset: int, id: str) -> Any:
        kind = self.messages[offset].kind
        if kind == "far":
            return envelope(id, at=FAR_MS, body=self.body(offset))
        return envelope(id, "5d" if kind == "late" else "1s", body=self.body(offset))

    def calls_of(self, first: int, until: int) -> Iterator[list[int]]:
        """The offsets of each call: a cancel is one of its own."""
        call: list[int] = []
        for offset in range(first, until):
            is_cancel = self.messages[offset].kind == "cancel"
            if call and (is_cancel or len(call) == CALL_ROWS):
                yield call
                call = []
            call.append(offset)
            if is_cancel:
                yield call
                call = []
        if call:
            yield call

    def batch(self, size: int, most_calls: int) -> None:
        """Take a batch in, and settle it, unless a crash comes after so many calls of the store."""
        until = min(self.settled + size, len(self.messages))
        for made, step in enumerate(self.steps(self.settled, until)):
            if made >= most_calls:
                return
            step()
        self.settled = until

    def steps(self, first: int, until: int) -> Iterator[Any]:
        for offsets in self.calls_of(first, until):
            if self.messages[offsets[0]].kind == "cancel":
                yield lambda offset=offsets[0]: self.cancel_from_the_log(offset)
                continue
            taken: list[int] = []
            yield lambda offsets=offsets, taken=taken: self.put(offsets, taken)
            if taken:
                yield lambda taken=taken: self.put_beside(taken)

    def put(self, offsets: Sequence[int], taken: list[int]) -> None:
        come_again = self.done.issuperset(offsets)
        rows = [self.envelope(offset, self.messages[offset].key) for offset in offsets]
        with self.desk.unchanged() if come_again else nullcontext():
            answers = self.stored(offsets, rows, mode="replace")
        taken += [n for n, each in zip(offsets, answers, strict=True) if each.status == "in_flight"]

    def put_beside(self, offsets: Sequence[int]) -> None:
        keys = [self.messages[offset].key for offset in offsets]
        pairs = zip(offsets, keys, strict=True)
        rows = [self.envelope(offset, f"{key}~{offset}") for offset, key in pairs]
        answers = self.stored(offsets, rows, primary_ids=keys)
        assert not {each.status for each in answers} & {"in_flight", "conflict"}

    def stored(self, offsets: Sequence[int], rows: Any, **how: Any) -> list[ScheduleReply]:
        places = [LogPosition("log", 1, offset) for offset in offsets]
        answers = self.desk.schedule(*rows, places=places, max_delay_ms=10 * DAY_MS, **how)
        for offset, answer in zip(offsets, answers, strict=True):
            if answer.status in STORED and offset not in self.done:
                self.done.add(offset)
                self.take(offset, answer.status)
        return answers

    def take(self, offset: int, status: str) -> None:
        """A message is stored; it is its key's last, or a later one had replaced it."""
        key, kind = self.messages[offset]
        if offset < self.last.get(key, -1):
            assert status == "duplicate", f"{key}: {offset} undoes {self.last[key]}"
            return
        self.last[key] = offset
        due_at_ms = self.desk.clock() + (5 * DAY_MS if kind == "late" else 1000)
        self.fates[self.body(offset)] = Fate(FAR_MS if kind == "far" else due_at_ms)

    def cancel_from_the_log(self, offset: int) -> None:
        come_again = offset in self.done
        with self.desk.unchanged() if come_again else nullcontext():
            answer = self.desk.store.cancel(
                self.messages[offset].key, LogPosition("log", 1, offset)
            )
        if not come_again:
            self.done.add(offset)
            self.last[self.messages[offset].key] = offset
            self.cancelled(self.messages[offset].key, answer)

    def cancelled(self, key: str, answer: str) -> None:
        """Note what a cancel binds. It reaches all that lives, while the key is known there."""
        for entry in self.entries_of(key):
            assert entry.record
            due_at_ms = min(self.fates[body_of(entry)].due_at_ms, entry.record.due_at_ms)
            if entry.id == key or self.desk.clock() < due_at_ms + KNOWN_FOR_MS:
                assert entry.flight.cancel, f"{entry.id} lives on after a cancel"
                assert answer == "in_flight"
        for offset in self.done:
            if self.messages[offset].key == key and (fate := self.fates.get(self.body(offset))):
                fate.is_excused |= answer in EFFECTIVE
                fate.is_banned |= answer == "cancelled" and not self.is_alive(key, offset)

    # ── workers, a producer, an operator ────────────────────────────────────────────────────────

    def happen(self, event: Event) -> None:
        getattr(self, event.kind)(event.size, event.part)
        self.check()

    def crash(self, size: int, part: int) -> None:
        """What the broker knows of the consumer is a little older."""
        self.settled = max(0, self.settled - size)

    def advance(self, size: int, part: int) -> None:
        self.desk.clock.advance((1000, LEASE_MS, DAY_MS, 8 * DAY_MS)[size % 4])
        self.desk.store.reclaim()
        self.desk.store.forget()

    def claim(self, size: int, part: int) -> None:
        self.desk.clock.advance(1000)
        self.desk.store.promote()
        claim = self.desk.store.claim(size, LEASE_MS, alone=part == 0)
        for each in claim.leased:
            entry = self.desk.store.get(each.id)
            assert entry
            assert not self.fates[body_of(entry)].is_banned, "published after its cancel"
            self.bodies[claim.token, each.id] = body_of(entry)
        self.claims += [claim] * bool(claim.leased)

    def settle(self, size: int, part: int) -> None:
        """A worker settles one envelope, or all, of a claim, which may be over."""
        if not self.claims:
            return
        claim = self.claims[size % len(self.claims)]
        ids = claim.ids[:1] if part % 2 else claim.ids
        self.settle_ids(claim, ids, ("ack", "release", "retry", "unsure", "bury")[part % 5])

    def settle_ids(self, claim: Claim, ids: Sequence[str], how: str) -> None:
        store, token = self.desk.store, claim.token
        if how == "ack":
            stale = store.ack(acks(token, *ids)).stale
            for name in set(ids) - set(stale):
                self.fates[self.bodies[token, name]].is_delivered = True
        elif how == "release":
            store.release(token, ids)
        elif how == "bury":
            store.bury(token, [burial(name, unsure=len(ids) == 1) for name in ids])
        else:
            store.retry(token, [retrying(name, 500, unsure=how == "unsure") for name in ids])

    def replay(self, size: int, part: int) -> None:
        """An operator brings dead envelopes back: what was cancelled is theirs to deliver."""
        dead = self.desk.store.list("dead").entries
        for entry in dead[: size + 1]:
            if self.desk.store.replay([entry.id]) == ["replayed"]:
                due_at_ms = self.fates[body_of(entry)].due_at_ms
                self.fates[body_of(entry)] = Fate(due_at_ms, is_excused=True)

    def shunt(self, size: int, part: int) -> None:
        claim = self.desk.store.shunt(size, LEASE_OF_A_SHUNT)
        for each in claim.leased:
            entry = self.desk.store.get(each.id)
            assert entry
            self.fates[body_of(entry)].is_delivered |= bool(part % 2)
        if part % 2:
            self.desk.store.ack(acks(claim.token, *claim.ids), shunted=True)

    def cancel(self, size: int, part: int) -> None:
        key = KEYS[part % len(KEYS)]
        self.cancelled(key, self.desk.store.cancel(key))

    # ── what must hold ──────────────────────────────────────────────────────────────────────────

    def entries_of(self, key: str) -> list[Entry]:
        """What lives for a key, but for dead ones."""
        names = [name.decode() for name in self.desk.client.hkeys(self.desk.key("envelopes"))]
        found = [self.desk.store.get(name) for name in names if name.partition("~")[0] == key]
        return [each for each in found if each and each.state != "dead"]

    def is_alive(self, key: str, offset: int) -> bool:
        return self.body(offset) in map(body_of, self.entries_of(key))

    def check(self) -> None:
        there = {body_of(each) for each in self.desk.store.list("dead").entries}
        for key in KEYS:
            for entry in self.entries_of(key):
                assert not self.fates[body_of(entry)].is_banned, f"{entry.id} after its cancel"
                there.add(body_of(entry))
        for key, offset in self.last.items():
            if self.messages[offset].kind != "cancel":
                fate = self.fates[self.body(offset)]
                is_kept = fate.is_delivered or fate.is_excused or self.body(offset) in there
                assert is_kept, f"{key}: {offset} is lost"

    def finish(self) -> None:
        """Take the rest in, and all once more; let all leases end, and deliver everything."""
        for _ in range(2):
            self.batch(len(self.messages), 4 * len(self.messages))
            self.settled = 0
        self.desk.clock.advance(20 * DAY_MS)
        self.desk.store.reclaim()
        self.desk.store.promote()
        for is_alone in (False, True):
            for _ in range(len(self.messages)):
                if self.is_over():
                    break
                self.claim(100, part=not is_alone)
                if self.claims:
                    self.settle_ids(self.claims[-1], self.claims[-1].ids, "ack")
        self.desk.check()
        self.check()

    def is_over(self) -> bool:
        """Whether nothing is there that could be claimed."""
        return not self.desk.store.next().waiting


def body_of(entry: Entry) -> bytes:
    assert entry.content
    assert entry.content.body
    return entry.content.body
