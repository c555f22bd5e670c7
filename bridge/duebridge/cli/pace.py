"""How fast an operator lets a long work go."""

import re
import time
from collections.abc import Callable

from duebridge.errors import EnvelopeError

_RATE = re.compile(r"([1-9][0-9]{0,6})/s")
BATCHES_A_SECOND = 10  # so that a slow rate is even, and not one burst a second


def parse_rate(text: str) -> int:
    """Return a rate a second; raises `EnvelopeError`.

    >>> parse_rate("50/s")
    50
    """
    if match := _RATE.fullmatch(text.strip()):
        return int(match[1])
    raise EnvelopeError(f"--rate: expected a whole number a second, such as 50/s; got {text!r}")


class Pacer:
    """Lets batches pass no faster than a rate; None is as fast as it goes."""

    def __init__(
        self,
        rate: int | None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._sleep = sleep
        self._free_at = monotonic()

    def batch_size(self, most: int) -> int:
        """Return how many to settle at once, at most so many."""
        return most if self._rate is None else max(1, min(most, self._rate // BATCHES_A_SECOND))

    def wait(self, count: int) -> None:
        """Return when `count` more may go."""
        if self._rate is None:
            return
        now = self._monotonic()
        if (pause_s := self._free_at - now) > 0:
            self._sleep(pause_s)
        self._free_at = max(self._free_at, now) + count / self._rate
