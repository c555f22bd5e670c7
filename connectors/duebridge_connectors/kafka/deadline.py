"""The one clock of a publish."""

import time


class Deadline:
    """A moment `within_s` seconds from now that everything of one publish keeps to."""

    def __init__(self, within_s: float) -> None:
        self._at = time.monotonic() + within_s

    def left_s(self, at_most: float = float("inf")) -> float:
        """Return the seconds that are left, 0 when it is past, `at_most` when there are more."""
        return min(at_most, max(0.0, self._at - time.monotonic()))
