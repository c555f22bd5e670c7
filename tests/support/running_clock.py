"""A clock that stands still while this process does, for what promises to end in time.

On a busy machine a whole process may stand for seconds: that is no delay of the code under test.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

TICK_S = 0.01


class RunningClock:
    """Counts the seconds in which the process got to run, from `start` to `end`."""

    def __init__(self) -> None:
        self._ran_s = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="running clock", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(TICK_S):
            now = time.monotonic()
            self._ran_s += min(now - before, 2 * TICK_S)
            before = now

    def seconds(self) -> float:
        """Return the seconds so far; a stall counts as two ticks."""
        return self._ran_s

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


@contextmanager
def running_clock() -> Iterator[RunningClock]:
    clock = RunningClock()
    clock.start()
    try:
        yield clock
    finally:
        clock.end()


@contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    """Fail the test if what is inside takes longer, but for stalls of the whole process."""
    with running_clock() as clock:
        yield
        assert clock.seconds() < seconds, f"took {clock.seconds():.2f} s of {seconds:g} s"
