"""Limits the rate of calls to a failing store, for all threads of a process together."""

import random
import time
from collections.abc import Callable

from duebridge.errors import StoreUnavailable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
LASTS_S = 2.0


class CallSuppressed(StoreUnavailable):
    """The store failed a moment ago, so the call was not sent and certainly did not run."""


class Reconnects:
    """Refuses calls for a pause after each failure but the first; the pause doubles.

    A connection that did not last counts as none: only `LASTS_S` without a failure end the
    doubling, since behind a proxy that accepts and resets every connection seems to succeed. After
    a pause one call goes first, and the others wait for its answer or another pause.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._is_failing = False
        self._failed_at = float("-inf")
        self._pause_s = 0.0
        self._paused_until = 0.0
        self._next_at = 0.0  # later, where a call has gone

    @property
    def is_failing(self) -> bool:
        """Whether the latest call failed."""
        return self._is_failing

    def check(self) -> None:
        """Raise `CallSuppressed` during a pause."""
        if not self._is_failing:
            return
        now = self._monotonic()
        if now < self._next_at:
            raise CallSuppressed("the delay store did not answer a moment ago")
        self._next_at = now + self._pause_s

    def failed(self) -> None:
        """Note that the store did not answer; of failures within one pause the first counts."""
        now = self._monotonic()
        if now - self._failed_at > LASTS_S:
            self._pause_s = 0.0
        elif now >= self._paused_until or not self._is_failing:
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
        self._is_failing, self._failed_at = True, now
        jitter = random.uniform(0.5, 1)  # noqa: S311 - spreads clients
        self._next_at = self._paused_until = now + self._pause_s * jitter

    def answered(self) -> None:
        """Note an answer, which ends the pause."""
        self._is_failing = False
