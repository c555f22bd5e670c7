"""The threads of a lane that probes and dead letters may take: half of them at most.

A silent target keeps its thread until the publish deadline, so one thread is left to the others.
"""

from collections.abc import Callable

FRESH_S = 1.0  # the longest time between two turns of a loop


class SideThreads:
    """Counts the outstanding batches of probes and dead letters. The lane locks."""

    def __init__(self, threads: int, monotonic: Callable[[], float]) -> None:
        self._most = max(1, threads // 2)
        self._monotonic = monotonic
        self._taken: dict[int, bool] = {}  # by batch: does it try a silent target?
        self._freed_at = -FRESH_S

    @property
    def free(self) -> int:
        """The number of further batches that may go out."""
        return max(0, self._most - len(self._taken))

    @property
    def is_free_for_silent(self) -> bool:
        """Whether a batch to a silent target may go out: to all but one of several threads."""
        return self.free > 0 and sum(self._taken.values()) < max(1, self._most - 1)

    @property
    def is_fresh(self) -> bool:
        """Whether all were taken a moment ago, so that some shards had no turn since."""
        return not self.free or self._monotonic() < self._freed_at + FRESH_S

    def take(self, batch: object, *, is_silent: bool) -> None:
        """Count a batch as outstanding; `is_silent`: one of its targets was silent lately."""
        self._taken[id(batch)] = is_silent

    def give_back(self, batch: object) -> None:
        """Count a batch as published."""
        were_taken = not self.free
        if self._taken.pop(id(batch), None) is not None and were_taken:
            self._freed_at = self._monotonic()
