"""What the store should hold, as plain Python: one `Life` an id, moved by the same verbs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import ceil
from typing import Any

from duebridge.ports.publisher import Reason
from tests.store.properties.lives import Content, Life, Memories

POISON, SUSPECT_FROM = 2, 2
FAILURES = ("failed", "bury", "bury_unsure")


@dataclass
class Model(Memories):
    """The lives of a shard. Each method returns what the store has to answer.

    `generation` is the shard's counter, which the model only hears of. A call that has an id is
    given it as `call`, so that a repeated one answers as it did.
    """

    lives: dict[str, Life] = field(default_factory=dict)
    cold_tier: int = 0
    generation: int = 0
    versions: Iterator[int] = field(default_factory=lambda: count(1))

    def within(self, state: str, until: int | None = None) -> list[str]:
        """The ids of a state in the order of their scores."""
        found = [(life.score, name) for name, life in self.lives.items() if life.state == state]
        return [name for score, name in sorted(found) if until is None or score <= until]

    def scores(self) -> list[int]:
        """The instants at which something will come to pass."""
        states = ("pending", "unack", "retry", "dead")
        later = {life.score for life in self.lives.values() if life.state in states}
        return sorted(score for score in later if score > self.now)

    def end(self, id: str, ended: str) -> None:
        life = self.lives.pop(id)
        self.remember(id, life.due, life.content, ended)

    def schedule_batch(
        self,
        given: Sequence[tuple[str, Content]],
        replace: bool,
        generations: Sequence[int] = (),
        call: str = "",
    ) -> list[tuple[str, int | None]]:
        """Schedule in one step; answers each status, and the due of what is in the store."""
        before: list[tuple[str, int | None]] | None = self.recall(f"c{call}")
        if before is not None:
            return before
        answers: list[tuple[str, int | None]] = []
        anew: list[str] = []
        before_batch = dict(self.lives)
        replaced: dict[str, Content] = {}
        for place, (name, content) in enumerate(given):
            row = generations[place] if generations else 0
            status = self.schedule(name, content, replace, row)
            if status == "replaced" and name in before_batch:
                replaced.setdefault(name, before_batch[name].content)
            known = status in ("accepted", "replaced", "duplicate")
            answers.append((status, self.due_of(name, content) if known else None))
            anew += [name] * (not row and status in ("accepted", "replaced"))
        for name in anew:
            self.end_cold_copies(name)
        for name, former in replaced.items():
            if former.remember:
                self.keep_earlier(name, former, self.now + former.remember)
        self.answer(call, answers)
        return answers

    def due_of(self, id: str, content: Content) -> int | None:
        if id in self.lives:
            return self.lives[id].due
        remembered = self.recall(f"r{id}")
        due: int | None = content.at if remembered is None else remembered[0]
        return due

    def end_cold_copies(self, id: str) -> None:
        """Bind every cold row of an id that begins anew, moves or ends here."""
        if self.cold_tier:
            ended = self.generation
            self.memorize(f"t{id}", (ended, None, ended, ended), self.cold_tier)

    def tombstone(self, id: str) -> Any:
        """It binds however old it is."""
        memory = self.memories.get(f"t{id}")
        return (0, None, 0, 0) if memory is None else memory.value

    def schedule(self, id: str, content: Content, replace: bool, generation: int = 0) -> str:
        content = Content(*content)
        life = self.lives.get(id)
        has_ended = 0 < generation <= self.tombstone(id)[3]
        remembered = None if life is not None else self.recall(f"r{id}")
        became = self.became(remembered, content, replace)
        if life is not None and (living := self.judged_living(life, content, replace)):
            return "duplicate" if has_ended else living
        if became is not None or has_ended:
            return became or "duplicate"
        wanted = self.now + content.delay if content.at is None else content.at
        due = self.due_by_tombstone(id, generation, wanted) if life is None else wanted
        if due is None:
            self.remember(id, wanted, content, "cancelled")
            return "cancelled"
        expires = None if content.keep is None else self.now + content.keep
        if expires is not None and expires <= wanted:
            return "expires_before_due"
        is_unsure = life is not None and life.is_unsure
        new = Life(content, due, expires, "pending", due, has_flown=is_unsure, is_unsure=is_unsure)
        new.version = next(self.versions)
        self.lives[id] = new
        is_new = life is None and (remembered is None or not replace)
        return "accepted" if is_new else "replaced"

    def judged_living(self, life: Life, content: Content, replace: bool) -> str | None:
        if life.content == content:
            return "in_flight" if replace and life.is_cancelled else "duplicate"
        if not replace:
            return "conflict"
        return "in_flight" if self.may_go_out(life) else None

    def became(self, remembered: Any, content: Content, replace: bool) -> str | None:
        """Return what became of a remembered id; None where this is news."""
        is_news = remembered is None or replace or remembered[1] != content
        return None if is_news else remembered[2]

    def due_by_tombstone(self, id: str, generation: int, wanted: int) -> int | None:
        """Return the due of a cold row, None where it was cancelled; a producer's obeys none."""
        left_at, due, cancelled, _ = self.tombstone(id)
        if not generation:
            return wanted
        if generation <= cancelled:
            return None
        return due if due is not None and generation <= left_at else wanted

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

    def claim(self, limit: int, lease: int, *, alone: bool, promote: int = 0) -> list[str]:
        self.promote(promote)
        ids = self.within("suspect" if alone else "ready")[: 1 if alone else limit]
        claimed = []
        for name in ids:
            life = self.lives[name]
            life.has_flown = True
            life.is_aside = False
            if life.expires is not None and life.expires <= self.now:
                life.reason, life.held_since = Reason.EXPIRED, 0
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
        is_shunt = how in ("shunted", "postpone")
        stale = [name for name in ids if not self.is_held(name, token, is_shunt)]
        for name in ids:
            if name not in stale:
                self._settle_one(how, name, delay)
        return stale

    def is_held(self, id: str, token: bytes, is_shunt: bool) -> bool:
        life = self.lives.get(id)
        return life is not None and life.token == token and life.is_shunting == is_shunt

    def _settle_one(self, how: str, id: str, delay: int) -> None:
        life = self.lives[id]
        if how in ("ack", "shunted") or (life.is_cancelled and how != "postpone"):
            self.end(id, {"ack": "duplicate", "shunted": "dead"}.get(how, "cancelled"))
            return
        was_single = life.is_single
        life.let_go()
        life.failures += how in FAILURES
        life.is_unsure |= how in ("unsure", "bury_unsure")
        if how in ("target_failed", "set_aside"):
            life.held_since = life.held_since or self.now
        elif how not in ("release", "postpone"):
            life.held_since = 0
        if how in ("failed", "unsure", "target_failed"):
            life.retries += 1
            life.go("retry", self.now + delay)
        elif how == "set_aside":
            life.is_aside = True
            life.go("retry", self.now + delay)
        elif how == "release":
            life.go("suspect" if was_single else "ready", life.due)
        elif how in ("bury", "bury_unsure"):
            life.reason = Reason.INVALID
            life.go("dead", self.now)
        else:
            life.letters += 1
            life.go("dead", self.now + delay)

    def resume(self) -> int:
        """A target is well again: what was set aside for it is ready."""
        ids = [name for name in self.within("retry") if self.lives[name].is_aside]
        for name in ids:
            life = self.lives[name]
            life.go("suspect" if life.expiries >= SUSPECT_FROM else "ready", life.due)
        return len(ids)

    def reclaim(self, *, counted: bool) -> int:
        ids = self.within("unack", self.now)
        for name in ids:
            life = self.lives[name]
            if life.is_cancelled:
                self.end(name, "cancelled")
                continue
            life.expiries += counted
            life.singles += counted and life.is_single
            life.is_unsure = True
            life.let_go()
            life.go("suspect" if life.expiries >= SUSPECT_FROM else "ready", life.due)
            if life.singles >= POISON:
                life.reason, life.held_since = Reason.POISON, 0
                life.go("dead", self.now)
        return len(ids)

    def cancel(self, id: str, call: str = "") -> str:
        before: str | None = self.recall(f"c{call}")
        if before is not None:
            return before
        life = self.lives.get(id)
        if life is not None and life.state == "dead":
            return "dead"
        if life is None and not self.cold_tier:
            return "unknown"
        answered: str = self.answer(call, self._cancel_one(id, life))
        return answered

    def _cancel_one(self, id: str, life: Life | None) -> str:
        if life is None:
            left = (self.generation, None, self.generation, self.tombstone(id)[3])
            self.memorize(f"t{id}", left, self.cold_tier)
            return "recorded"
        self.end_cold_copies(id)
        if life.state == "unack":
            life.is_cancelled = True
            return "in_flight"
        self.end(id, "cancelled")
        return "in_flight" if life.is_unsure else "cancelled"

    def reschedule_call(self, id: str, delay: int, call: str) -> tuple[str, int]:
        """Reschedule under a call id; answers the due as well."""
        before: tuple[str, int] | None = self.recall(f"c{call}")
        if before is not None:
            return before
        answer = (self.reschedule(id, delay), self.now + delay)
        return self.answer(call, answer) if answer[0] in ("rescheduled", "recorded") else answer

    def reschedule(self, id: str, delay: int) -> str:
        life = self.lives.get(id)
        if life is None and self.cold_tier:
            return self._reschedule_cold(id, delay)
        if life is None or life.state == "dead":
            return "unknown" if life is None else "dead"
        if life.state == "unack" or life.is_unsure:
            return "in_flight"
        if life.expires is not None and life.expires <= self.now + delay:
            return "expires_before_due"
        self.end_cold_copies(id)
        life.due, life.version = self.now + delay, next(self.versions)
        life.held_since, life.is_aside = 0, False
        life.go("pending", life.due)
        return "rescheduled"

    def _reschedule_cold(self, id: str, delay: int) -> str:
        _, _, cancelled, ended = self.tombstone(id)
        if cancelled and cancelled == self.generation:
            return "unknown"
        left = (self.generation, self.now + delay, cancelled, ended)
        self.memorize(f"t{id}", left, self.cold_tier)
        return "recorded"

    def demote(self, batch: str, rows: Sequence[tuple[str, int]]) -> tuple[int, int, int]:
        """Remove what still has the version of its row; answers rows done, removed and void."""
        before: tuple[int, int, int] | None = self.recall(f"d{batch}")
        if before is not None:
            return before
        removed = 0
        for name, version in rows:
            life = self.lives.get(name)
            is_same = life is not None and life.version == version and life.state == "pending"
            if life is not None and is_same and not life.has_flown:
                del self.lives[name]
                removed += 1
            else:
                self.memorize(f"x{batch}/{name}", None, self.cold_tier)
        answer = (len(rows), removed, len(rows) - removed)
        self.memorize(f"d{batch}", answer, self.cold_tier)
        return answer

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
        again.version = next(self.versions)
        self.lives[id] = again
        return "replayed"

    def drop(self, id: str) -> str:
        life = self.lives.get(id)
        if life is None or life.state != "dead":
            return "unknown"
        if self.is_shunted(life):
            return "in_flight"
        self.end(id, "dead")
        return "dropped"
