"""Bounds what is outstanding by what the broker confirms in time (Little's law).

A window doubles while confirms keep up. That of a target starts small (slow start, RFC 5681): a
broker that several workers share may settle less than a batch of each by the deadline. It never
lets more out than the measured rate settles within `settle_within_s`, half a publish deadline, so
that a slow broker times nothing out. Only a full window measures: a trickle says nothing about the
rate.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

LEAST_SETTLE_S = 0.05


class Load(NamedTuple):
    """A number of envelopes, and their decoded bytes."""

    envelopes: int = 0
    size_bytes: int = 0

    def plus(self, other: "Load") -> "Load":
        """Return the sum."""
        return Load(self.envelopes + other.envelopes, self.size_bytes + other.size_bytes)

    def minus(self, other: "Load") -> "Load":
        """Return the difference."""
        return Load(self.envelopes - other.envelopes, self.size_bytes - other.size_bytes)

    def within(self, bound: "Load") -> "Load":
        """Return the smaller of each."""
        return Load(min(self.envelopes, bound.envelopes), min(self.size_bytes, bound.size_bytes))

    def at_least(self, floor: "Load") -> "Load":
        """Return the larger of each."""
        return Load(max(self.envelopes, floor.envelopes), max(self.size_bytes, floor.size_bytes))

    def reaches(self, other: "Load") -> bool:
        """Return whether either is as large as the other's."""
        return self.envelopes >= other.envelopes or self.size_bytes >= other.size_bytes


EMPTY = Load()
SMALL = Load(32, 64 * 1024)


class Window:
    """Bounds and counts the outstanding load. The caller locks."""

    def __init__(
        self,
        bound: Load,
        batch: int,
        start: Load,
        floor: Load,
        settle_within_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.size = start.within(bound)
        self.outstanding = EMPTY
        self.reserved: list[Load] = []  # by claims that wait for the store
        self._bound = bound
        self._batch = batch
        self._start = self.size
        self._floor = floor.within(bound)
        self._settle_within_s = settle_within_s
        self._monotonic = monotonic
        self._seen_at = monotonic()
        self._confirmed: Load | None = None  # since the window was full; None: it was not
        self._busy_s = 0.0
        self._last_rate: tuple[float, float] | None = None

    def room(self, claimants: int = 1) -> Load:
        """Return the free room; one envelope of any size fits if nothing is outstanding.

        A window that was full opens by a quarter at least: many small batches would make a link
        slow, and then the window small (the silly window of TCP, RFC 813).
        """
        return EMPTY if self._is_full() else self.left(claimants)

    def left(self, claimants: int = 1) -> Load:
        """Return the room that is neither outstanding nor reserved, however little.

        Of several claimants each has a share at most: a claim that its store holds up leaves the
        others theirs, also where the window has shrunk meanwhile.
        """
        share = Load(*(-(-each // claimants) for each in self.size))
        left = self.size.minus(self.outstanding)
        for each in self.reserved:
            left = left.minus(each.within(share))
        is_taken = bool(self.reserved) and min(left) <= 0
        return EMPTY if is_taken else left.at_least(EMPTY).within(share)

    def _is_full(self) -> bool:
        left = self.size.minus(self.outstanding)
        least = min(self._batch, -(-self.size.envelopes // 4))
        return left.envelopes < least or (left.size_bytes <= 0 and self.outstanding.envelopes > 0)

    def half_settles_in_s(self) -> float:
        """Return after how long half of what is outstanding is expected to be settled.

        Before anything is measured, as long as the window is full by now: repeated waits double.
        """
        if self._last_rate is None:
            self._tick()
            full_s = 0.0 if self._confirmed is None else self._busy_s
            return min(max(full_s, LEAST_SETTLE_S), self._settle_within_s / 4)
        expected_s = self.outstanding.envelopes / 2 / max(self._last_rate[0], 1e-6)
        return min(max(expected_s, LEAST_SETTLE_S), self._settle_within_s)

    def take(self, load: Load, *, is_cut: bool = False) -> None:
        """Count a batch as outstanding; `is_cut`: what did not fit was left, so it is full."""
        self._tick()
        self.outstanding = self.outstanding.plus(load)
        self._measure_if_full(is_full=is_cut)

    def give_back(self, load: Load, confirmed: Load = EMPTY) -> None:
        """Count a batch as settled, and adapt to the rate of the confirms."""
        self._tick()
        self.outstanding = self.outstanding.minus(load)
        if self._confirmed is None:
            return
        self._confirmed = self._confirmed.plus(confirmed)
        if self._confirmed.reaches(self.size):
            self._follow(self._confirmed)
            self._confirmed = None
            self._measure_if_full()

    def restart(self) -> None:
        """Begin again with a quarter, or a start: nothing was confirmed within a deadline."""
        quarter = Load(*(each // 4 for each in self.size))
        self.size = quarter.within(self._start).at_least(self._floor)
        self._confirmed = self._last_rate = None

    def reopen(self) -> None:
        """Open to a start at least: what was silent is a part of the target, which gets nothing."""
        self.size = self.size.at_least(self._start)

    def _measure_if_full(self, *, is_full: bool = False) -> None:
        if self._confirmed is None and (is_full or self._is_full()):
            self._confirmed, self._busy_s = EMPTY, 0.0

    def _follow(self, confirmed: Load) -> None:
        busy_s = max(self._busy_s, 1e-6)
        rate = (confirmed.envelopes / busy_s, confirmed.size_bytes / busy_s)
        slower = rate if self._last_rate is None else tuple(map(min, rate, self._last_rate))
        self._last_rate = rate
        settled = Load(*(int(each * self._settle_within_s) for each in slower))
        doubled = self.size.plus(self.size)
        self.size = settled.within(doubled).at_least(self._floor).within(self._bound)

    def _tick(self) -> None:
        """Count the time during which something was outstanding."""
        now = self._monotonic()
        if self.outstanding.envelopes:
            self._busy_s += now - self._seen_at
        self._seen_at = now
