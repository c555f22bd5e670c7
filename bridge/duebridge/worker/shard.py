"""One shard of a route as a worker sees it: what it last heard of it, and when.

Everything here is a hint for what to do next and how long to sleep; the scripts decide again.
"""

import time
from collections.abc import Callable
from math import inf
from random import uniform

import structlog

from duebridge.config.models import Route
from duebridge.envelope import Target
from duebridge.errors import StoreError
from duebridge.store.batching import CALL_ROWS
from duebridge.store.delay_store import READY_FULL, DelayStore
from duebridge.store.poll import NONE, Poll, Stats
from duebridge.store.replies import Claim

POLL_EVERY_S = 1.0  # at the latest: a lost hint costs no more than this
STATS_EVERY_S = 5.0  # for gauges
PROBE_EVERY_S = 1.0
FIRST_PAUSE_S = 0.05
GATHER_S = 0.003  # from one promotion to the next, so that a trickle is still a batch
BACKLOG = 100  # so many promoted at once are no trickle: the rest need not gather
TICK_S = 0.001  # beyond a due ms the store's clock has reached it for certain


class Gate:
    """Whether a held route may try its target again: one envelope a second, over all its shards."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._next_probe_at = 0.0

    def sleep_s(self) -> float:
        """Seconds until the next probe may be made."""
        return max(0.0, self._next_probe_at - self._monotonic())

    def may_probe(self) -> bool:
        """Whether the next probe's time has come; asking takes it."""
        if self._monotonic() < self._next_probe_at:
            return False
        self._next_probe_at = self._monotonic() + PROBE_EVERY_S
        return True


class ShardView:
    """A shard's store, its route, and the latest poll. Only the worker's own thread moves it on."""

    def __init__(
        self,
        route: Route,
        store: DelayStore,
        gate: Gate,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        is_watched: bool = False,
    ) -> None:
        self.route = route
        self.target: Target = route.target
        self.store = store
        self.gate = gate
        self.poll = Poll(0, *[0] * 6, *[NONE] * 8)
        self.stats: Stats | None = None  # the latest look, of a shard that is watched
        self.has_backlog = False  # more was due at the latest promotion than one trickle
        self.is_unreadable = False  # a record here needs a newer worker
        self._monotonic = monotonic
        self._polled_at = -POLL_EVERY_S
        self._must_poll = True
        self._stats_at = -inf if is_watched else inf
        self._unreachable_since: float | None = None
        self._poll_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._blameless_until = 0.0
        self._gathers_until = 0.0

    def gather(self, promoted: int) -> None:
        """Note a promotion: the next one waits a moment, unless there is a backlog."""
        self.has_backlog = promoted >= BACKLOG
        if not self.has_backlog:
            self._gathers_until = self._monotonic() + GATHER_S

    def update(self, poll: Poll) -> None:
        """Take over the poll of a call that this worker's own thread made."""
        now = self._monotonic()
        if (
            self._unreachable_since is not None
            and now - self._unreachable_since >= self.route.lease / 2000
        ):
            self._blameless_until = now + self.route.lease / 1000
        self._unreachable_since, self._pause_s = None, FIRST_PAUSE_S
        self.poll, self._polled_at, self._must_poll = poll, now, False

    def merge_poll(self, poll: Poll | None) -> None:
        """Take note of a poll from another thread: an older one tells nothing, a doubtful one asks.

        Within one ms nobody can tell which of two polls is the older.
        """
        if poll is None or poll.now_ms == self.poll.now_ms:
            self._must_poll = True
        elif poll.now_ms > self.poll.now_ms:
            must_poll = self._must_poll  # a hint may be newer than this poll
            self.update(poll)
            self._must_poll = must_poll

    def mark_unreachable(self) -> None:
        """Note that the store did not answer; it is asked again after a pause."""
        now = self._monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
        self._poll_at = now + uniform(self._pause_s / 2, self._pause_s)  # noqa: S311 - jitter
        self._pause_s = min(2 * self._pause_s, POLL_EVERY_S)
        self._must_poll = True

    @property
    def is_heard(self) -> bool:
        """Whether the store has answered, and did so the last time it was asked."""
        return self.poll.now_ms > 0 and self._unreachable_since is None

    @property
    def is_pausing(self) -> bool:
        """Whether the store was away a moment ago and is left alone for now."""
        return self._unreachable_since is not None and self._monotonic() < self._poll_at

    def refresh(self) -> None:
        """Poll the store if the last poll is too old to go by; raises `StoreUnavailable`.

        A look takes the place of a poll, or is a call of its own where a busy shard needs none.
        """
        now = self._monotonic()
        is_old = self._must_poll or now - self._polled_at >= POLL_EVERY_S
        if now >= self._stats_at + (0 if is_old else POLL_EVERY_S):
            self.stats = self.store.stats()
            self._stats_at = now + STATS_EVERY_S
            self.update(self.stats.poll)
        elif is_old:
            self.update(self.store.next())

    def now_ms(self) -> int:
        """The store's clock, as far as it can be told from here; never ahead of it."""
        elapsed_us = round((self._monotonic() - self._polled_at) * 1_000_000)
        return self.poll.now_ms + elapsed_us // 1000

    def is_due(self, first_ms: int) -> bool:
        """Whether a first score of the latest poll has come."""
        return NONE < first_ms <= self.now_ms()

    @property
    def counts_expiries(self) -> bool:
        """Whether a lease that ran out is to be blamed: not if we saw the store away that long."""
        return self._monotonic() >= self._blameless_until

    @property
    def is_held(self) -> bool:
        """Whether the target failed, nothing was confirmed since, and `hold` is not over yet."""
        return self.poll.is_held and not self.is_past_hold

    @property
    def is_past_hold(self) -> bool:
        """Whether a target error now buries its envelope."""
        hold_ms = self.route.on_target_error.hold
        return hold_ms == 0 or (
            self.poll.is_held and self.now_ms() - self.poll.held_since_ms >= hold_ms
        )

    @property
    def promotable(self) -> bool:
        """Whether something is due, has gathered, and ready has room for it."""
        if self._monotonic() < self._gathers_until:
            return False
        is_due = self.is_due(self.poll.first_pending_ms) or self.is_due(self.poll.first_retry_ms)
        return is_due and self.poll.ready < READY_FULL

    def sleep_s(self) -> float:
        """Seconds until there is something to do here, as far as is known; not claims or shunts."""
        now = self._monotonic()
        if self._must_poll:
            return max(0.0, self._poll_at - now)
        waits = [self._polled_at + POLL_EVERY_S - now]
        waits += map(self._until_s, (self.poll.first_unack_ms, self.poll.first_forget_ms))
        if self.poll.ready < READY_FULL:
            firsts = (self.poll.first_pending_ms, self.poll.first_retry_ms)
            due_s = min(map(self._until_s, firsts))
            waits.append(max(due_s, self._gathers_until - now))
        return max(0.0, min(waits))

    def _until_s(self, first_ms: int) -> float:
        """Seconds until a first score of the latest poll has come."""
        if first_ms == NONE:
            return POLL_EVERY_S
        return max(0, first_ms - self.now_ms()) / 1000 + TICK_S


log = structlog.get_logger()


def claim_batch(
    view: ShardView, limit: int, limit_bytes: int, *, alone: bool, promote: int
) -> Claim:
    """Lease a batch in calls of `CALL_ROWS` until one is not full, all under one token.

    What is leased is returned, whatever becomes of a later call: its own leases then run out.
    """
    store, lease_ms = view.store, view.route.lease
    rows = min(limit, CALL_ROWS)
    claim = latest = store.claim(
        rows, lease_ms, limit_bytes=limit_bytes, alone=alone, promote=promote
    )
    while latest.taken == CALL_ROWS:
        rows = min(limit - claim.taken, CALL_ROWS)
        left_bytes = limit_bytes - claim.size_bytes
        if rows <= 0 or left_bytes <= 0:
            break
        try:
            latest = store.claim(rows, lease_ms, limit_bytes=left_bytes, token=claim.token)
        except StoreError as error:
            log.warning("claim_cut_short", route=view.route.name, error=str(error))
            break
        claim = claim.joined(latest)
    return claim
