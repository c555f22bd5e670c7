"""The envelopes of the plain model, and what outlives them."""

from dataclasses import dataclass
from typing import Any, NamedTuple


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
