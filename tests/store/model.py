"""What the store should hold, as plain Python: one `Life` an id, moved by the same verbs."""

from dataclasses import dataclass, field
from math import ceil
from typing import Any

from bridge.reasons import Reason
from bridge.store.record import read_flight, read_record
from tests.store.invariants import NOBODY, Snapshot

POISON, SUSPECT_FROM = 2, 2


@dataclass
class Life:
    """One envelope between its acceptance and its end."""

    content: tuple[int, int | None, int]
    due: int
    expires: int | None
    state: str
    score: int
    generation: int = 0
    token: bytes | None = None
    has_flown: bool = False
    attempt: int = 0
    failures: int = 0
    retries: int = 0
    expiries: int = 0
    singles: int = 0
    is_unsure: bool = False
    is_cancelled: bool = False
    is_single: bool = False
    is_shunting: bool = False
    reason: int = 0

    def go(self, state: str, score: int) -> None:
        self.state, self.score = state, score

    def let_go(self) -> None:
        self.token, self.is_single, self.is_shunting = None, False, False


@dataclass
class Model:
    """The lives of a shard. Each method returns what the store has to answer."""

    now: int
    lives: dict[str, Life] = field(default_factory=dict)

    def within(self, state: str, until: int | None = None) -> list[str]:
        """The ids of a state in the order of their scores."""
        found = [(life.score, name) for name, life in self.lives.items() if life.state == state]
        return [name for score, name in sorted(found) if until is None or score <= until]

    def scores(self) -> list[int]:
        """The instants at which something will come to pass."""
        states = ("pending", "unack", "retry", "dead")
        later = {life.score for life in self.lives.values() if life.state in states}
        return sorted(score for score in later if score > self.now)

    def schedule(self, id: str, content: tuple[int, int | None, int], replace: bool) -> str:
        life = self.lives.get(id)
        if life is not None and life.content == content:
            return "duplicate"
        if life is not None and not replace:
            return "conflict"
        if life is not None and self.may_go_out(life):
            return "in_flight"
        delay, keep, _ = content
        if keep is not None and keep <= delay:
            return "expires_before_due"
        due = self.now + delay
        expires = None if keep is None else self.now + keep
        self.lives[id] = Life(content, due, expires, "pending", due)
        return "accepted" if life is None else "replaced"

    def may_go_out(self, life: Life) -> bool:
        is_held = life.state == "unack" or self.is_shunted(life)
        return is_held or (life.is_unsure and life.state != "dead")

    def is_shunted(self, life: Life) -> bool:
        return life.is_shunting and life.score > self.now

    def promote(self, limit: int) -> int:
        retries = self.within("retry", self.now)[: ceil(limit / 2)]
        fresh = self.within("pending", self.now)[: limit - len(retries)]
        for name in retries + fresh:
            life = self.lives[name]
            life.go("suspect" if life.expiries >= SUSPECT_FROM else "ready", life.score)
        return len(retries + fresh)

    def claim(self, limit: int, lease: int, *, alone: bool) -> list[str]:
        ids = self.within("suspect" if alone else "ready")[: 1 if alone else limit]
        claimed = []
        for name in ids:
            life = self.lives[name]
            life.has_flown = True
            if life.expires is not None and life.expires <= self.now:
                life.reason = Reason.EXPIRED
                life.go("dead", self.now)
            else:
                life.attempt, life.is_single = life.attempt + 1, alone
                life.go("unack", self.now + lease)
                claimed.append(name)
        return claimed

    def shunt(self, limit: int, lease: int) -> list[str]:
        ids = self.within("dead", self.now)[:limit]
        for name in ids:
            self.lives[name].is_shunting = True
            self.lives[name].go("dead", self.now + lease)
        return ids

    def hold(self, ids: list[str], token: bytes) -> None:
        for name in ids:
            self.lives[name].token = token

    def settle(self, how: str, token: bytes, ids: list[str], delay: int) -> list[str]:
        """Let a worker say what became of envelopes; returns those that are not its own."""
        stale = [name for name in ids if name not in self.lives or self.lives[name].token != token]
        for name in ids:
            if name not in stale:
                self._settle_one(how, name, delay)
        return stale

    def _settle_one(self, how: str, id: str, delay: int) -> None:
        life = self.lives[id]
        if how == "ack" or (life.is_cancelled and how != "postpone"):
            del self.lives[id]
            return
        was_single = life.is_single
        life.let_go()
        life.failures += how in ("failed", "bury")
        life.is_unsure |= how == "unsure"
        if how in ("failed", "unsure"):
            life.retries += 1
            life.go("retry", self.now + delay)
        elif how == "release":
            life.go("suspect" if was_single else "ready", life.due)
        elif how == "bury":
            life.reason = Reason.INVALID
            life.go("dead", self.now)
        else:
            life.go("dead", self.now + delay)

    def reclaim(self, *, counted: bool) -> int:
        ids = self.within("unack", self.now)
        for name in ids:
            life = self.lives[name]
            if life.is_cancelled:
                del self.lives[name]
                continue
            life.expiries += counted
            life.singles += counted and life.is_single
            life.is_unsure = True
            life.let_go()
            life.go("suspect" if life.expiries >= SUSPECT_FROM else "ready", life.due)
            if life.singles >= POISON:
                life.reason = Reason.POISON
                life.go("dead", self.now)
        return len(ids)

    def cancel(self, id: str) -> str:
        life = self.lives.get(id)
        if life is None:
            return "unknown"
        if life.state == "dead":
            return "dead"
        if life.state == "unack":
            life.is_cancelled = True
            return "in_flight"
        del self.lives[id]
        return "in_flight" if life.is_unsure else "cancelled"

    def reschedule(self, id: str, delay: int) -> str:
        life = self.lives.get(id)
        if life is None or life.state == "dead":
            return "unknown" if life is None else "dead"
        if life.state == "unack" or life.is_unsure:
            return "in_flight"
        if life.expires is not None and life.expires <= self.now + delay:
            return "expires_before_due"
        life.due = self.now + delay
        life.go("pending", life.due)
        return "rescheduled"

    def replay(self, id: str, delay: int) -> str:
        life = self.lives.get(id)
        if life is None or life.state != "dead":
            return "unknown"
        if self.is_shunted(life):
            return "in_flight"
        due = self.now + delay
        expires = life.expires if life.expires is not None and life.expires > due else None
        again = Life(life.content, due, expires, "pending", due, has_flown=True)
        again.attempt, again.is_unsure = life.attempt, life.is_unsure
        self.lives[id] = again
        return "replayed"

    def drop(self, id: str) -> str:
        life = self.lives.get(id)
        if life is None or life.state != "dead":
            return "unknown"
        if self.is_shunted(life):
            return "in_flight"
        del self.lives[id]
        return "dropped"


def kept(found: Snapshot, id: bytes) -> dict[str, Any]:
    record = read_record(found["envelopes"][id])
    packed = found["flight"].get(id, b"")
    flight = read_flight(packed)
    token = packed[:12] if packed and packed[:12] != NOBODY else None
    counts = (flight.attempt, flight.failures, flight.retries, flight.expiries, flight.singles)
    marks = (flight.unsure, flight.cancel, flight.shunting, flight.reason)
    return {
        "record": (record.due_at_ms, record.expires_at_ms or None, record.generation),
        "flight": (bool(packed), token, counts, marks),
    }


def expected_of(life: Life) -> dict[str, Any]:
    counts = (life.attempt, life.failures, life.retries, life.expiries, life.singles)
    marks = (life.is_unsure, life.is_cancelled, life.is_shunting, life.reason)
    return {
        "record": (life.due, life.expires, life.generation),
        "flight": (life.has_flown, life.token, counts, marks),
    }
