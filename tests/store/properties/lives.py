"""The envelopes of the plain model, and what outlives them."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.support.desk import DAY_MS

KEEP_ANSWER_MS = 60_000
MOST_EARLIER = 32


class Content(NamedTuple):
    """What a producer says of an envelope; `at` stands for the delay in a row of the cold tier."""

    delay: int
    keep: int | None = None
    body: int = 0
    remember: int = 0
    at: int | None = None


class Memory(NamedTuple):
    """What outlives an envelope or a call, until its time is over."""

    until: int
    value: Any


@dataclass
class Life:
    """One envelope between its acceptance and its end."""

    content: Content
    due: int
    expires: int | None
    state: str
    score: int
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
    is_aside: bool = False
    held_since: int = 0
    letters: int = 0
    reason: int = 0
    version: int = 0  # stands for the generation, which the model only hears of

    def go(self, state: str, score: int) -> None:
        self.state, self.score = state, score

    def let_go(self) -> None:
        self.token, self.is_single, self.is_shunting = None, False, False


@dataclass
class Memories:
    """The memories of a shard, each by the store's name for it, and when they are over."""

    now: int
    memories: dict[str, Memory] = field(default_factory=dict)
    few_expired: int = 8

    def memorize(self, name: str, value: Any, keep: int) -> None:
        """Keep a value; the first write of a call drops up to eight that are over, the others two.

        Of values that end at one instant it drops the store's by their first letters; answers of
        calls have other names there.
        """
        first = sorted((each.until, name) for name, each in self.memories.items())
        for until, each in first[: self.few_expired]:
            if until <= self.now:
                self._look_again(each)
        self.few_expired = 2
        self.memories[name] = Memory(self.now + keep, value)

    def _look_again(self, name: str) -> bool:
        """Drop what is over; a mark stays for a day, since its row may be read late."""
        if name[0] in "tx":
            self.memories[name] = Memory(self.now + DAY_MS, self.memories[name].value)
            return False
        del self.memories[name]
        return True

    def recall(self, name: str) -> Any:
        memory = self.memories.get(name)
        return memory.value if memory is not None and memory.until > self.now else None

    def answer(self, call: str, answer: Any) -> Any:
        """Keep the answer of a call that has an id."""
        if call:
            self.memorize(f"c{call}", answer, KEEP_ANSWER_MS)
        return answer

    def forget(self) -> int:
        over = [name for name, memory in self.memories.items() if memory.until <= self.now]
        return sum(self._look_again(name) for name in over)

    def remember(self, id: str, due: int, content: Content, ended: str) -> None:
        """Remember an end; other content that ended under the id stays known beside it."""
        if not content.remember:
            return
        before = self.memories.get(f"r{id}")
        if before is not None and before.until > self.now and before.value[1] != content:
            self.keep_earlier(id, before.value[1], before.until)
        self.memorize(f"r{id}", (due, content, ended), content.remember)

    def keep_earlier(self, id: str, content: Content, until: int) -> None:
        others = self.recall(f"e{id}") or ()
        kept = [(at, other) for at, other in others if at > self.now and other != content]
        kept = [(until, content), *kept][:MOST_EARLIER]
        self.memorize(f"e{id}", kept, max(at for at, _ in kept) - self.now)
