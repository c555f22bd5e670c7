"""Caches the latest poll of a shard, and decides when to act, poll again or sleep.

This state is only a hint: the scripts check every transition again in the store.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from random import uniform
from typing import NamedTuple

import structlog

from duebridge.config.models import Route
from duebridge.envelope import Target
from duebridge.errors import StoreError
from duebridge.store.aside import AsideCount
from duebridge.store.batching import CALL_BYTES, CALL_ROWS
from duebridge.store.delay_store import NO_CURSOR, READY_FULL, DelayStore
from duebridge.store.wire.leases import Claim, LeasedEnvelope
from duebridge.store.wire.poll import NONE, Poll, Stats
from duebridge.store.wire.transitions import ReaddressMode
from duebridge.worker.gauge_lease import GaugeLease

POLL_EVERY_S = 1.0  # upper bound: a lost wake-up hint costs no more than this
READDRESS_EVERY_S = 10.0  # dead envelopes of processes that know no target for them yet
STATS_EVERY_S = 5.0  # refresh interval of the gauges
MOST_RESUMED = 8  # targets, each in a search of its own; more are looked for in one
ASIDE_PAGES = 5  # of `CALL_ROWS` retries, each time: what is set aside is counted in rounds
FIRST_PAUSE_S = 0.05
GATHER_S = 0.003  # between promotions, so that a trickle of envelopes still forms batches
BACKLOG = 100  # envelopes per promotion from which on batches need no gathering
TICK_S = 0.001  # after this margin the store's clock has certainly reached a due ms

log = structlog.get_logger()


class StoreClock(NamedTuple):
    """A reading of the store's clock, and the monotonic instant when it arrived.

    One value: the threads of lanes read the clock while the loop replaces it.
    """

    now_ms: int
    read_at: float


class ShardView:
    """A worker's view of one shard: route, store, latest poll.

    Only the loop that has the shard mutates it, in a turn; others leave notes.
    """

    def __init__(
        self,
        route: Route,
        store: DelayStore,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        exporter: str = "",
    ) -> None:
        """`exporter` names this process if it exports gauges; empty: it does not."""
        self.route = route
        self.target: Target = route.target
        self.store = store
        self.shard = store.shard
        self.dead_letter = route.dead_letter
        self.poll = Poll(0, *[0] * 6, *[NONE] * 7)
        self.stats: Stats | None = None  # the latest statistics, if gauges are collected
        self.gauge_lease = GaugeLease(exporter, monotonic)
        self.aside = AsideCount()  # counted while this worker has the lease of the gauges
        self.has_backlog = False  # the latest promotion moved `BACKLOG` envelopes or more
        self.is_unreadable = False  # a record requires a newer duebridge
        # Replicas did not confirm the latest claim. Polls, which the primary answers, leave it so.
        self.is_unconfirmed = False
        # The tags of targets that are well again, and how far their envelopes are resumed. A worker
        # that starts knows of no held target: it resumes all.
        self.resuming: dict[str, tuple[str, str]] = {"": NO_CURSOR}
        self.inflation = 1.0  # decoded bytes per stored byte, of the latest claim
        self.node = ""  # the Cluster's node that has the shard, as the worker last saw it
        self.in_turn = threading.Lock()  # the former loop may still wait for the shard's old node
        self._polls: deque[Poll | None] = deque()
        self._recovered: deque[str] = deque()
        self._monotonic = monotonic
        self._clock = StoreClock(0, -POLL_EVERY_S)
        self._must_poll = True
        self._stats_at = -inf if exporter else inf
        self._unreachable_since: float | None = None
        self._is_doubted = False  # a call failed, and no turn was whole nor any write done since
        self.refusal = ""  # why a store that answers did not do what was asked; empty: it is silent
        self._poll_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._blameless_until = 0.0
        self._gathers_until = 0.0
        self._readdress_at: float | None = None  # none: what another target rejected comes first

    def gather(self, promoted: int) -> None:
        """Record a promotion; without a backlog, delay the next one by `GATHER_S`."""
        self.has_backlog = promoted >= BACKLOG
        if not self.has_backlog:
            self._gathers_until = self._monotonic() + GATHER_S

    def update(self, poll: Poll, *, is_read: bool = False) -> None:
        """Store a poll made by the loop thread.

        One that only read ends no outage: a store that refuses to write answers it.
        """
        if not (is_read and self._is_doubted):
            self.mark_served()
        read_at = self._monotonic()
        self.poll, self._clock, self._must_poll = poll, StoreClock(poll.now_ms, read_at), False

    def mark_served(self) -> None:
        """Record that the store did all that a turn, or a write, asked of it."""
        if self._was_long_away:
            self._blameless_until = self._monotonic() + self.route.lease / 1000
        self._unreachable_since, self._pause_s, self._is_doubted = None, FIRST_PAUSE_S, False
        self.refusal = ""

    @property
    def _was_long_away(self) -> bool:
        since = self._unreachable_since
        return since is not None and self._monotonic() - since >= self.route.lease / 2000

    def note_poll(self, poll: Poll | None) -> None:
        """Leave a poll of another thread for the next turn; None only requests one. Thread-safe."""
        self._polls.append(poll)

    def note_recovered(self, tag: str) -> None:
        """Resume what was set aside for a target from the next turn on. Thread-safe."""
        self._recovered.append(tag)

    def take_notes(self) -> None:
        """Take what other threads left."""
        while self._polls:
            self.merge_poll(self._polls.popleft())
        while self._recovered:
            self.resuming[self._recovered.popleft()] = NO_CURSOR
        if len(self.resuming) > MOST_RESUMED:
            self.resuming = {"": NO_CURSOR}

    def merge_poll(self, poll: Poll | None) -> None:
        """Merge a poll from another thread: ignore it if older, re-poll if the order is unknown.

        Two polls of the same millisecond have no known order. None only requests a new poll.
        """
        if poll is None or poll.now_ms == self.poll.now_ms:
            self._must_poll = True
        elif poll.now_ms > self.poll.now_ms:
            must_poll = self._must_poll  # a hint may be newer than this poll
            self.update(poll)
            self._must_poll = must_poll

    def target_of(self, leased: LeasedEnvelope) -> Target:
        """Return an envelope's target: its own, or the route's."""
        return leased.content.target or self.target

    @property
    def awaiting(self) -> Iterator[Target]:
        """The route's targets for which something is due, under way or backing off.

        Not its target where envelopes may have their own: of these the counts do not tell.
        """
        poll = self.poll
        if poll.waiting > poll.pending and not self.route.allow_targets:
            yield self.target
        if self.dead_letter is not None and poll.first_dead_ms != NONE:
            yield self.dead_letter

    @property
    def readdress_mode(self) -> ReaddressMode | None:
        """Which dead envelopes are to be made due now; None for none.

        A process that has no target for the route yet may bury at any time: such are sought again.
        """
        if self.dead_letter is None:
            return None
        if self._readdress_at is None:
            return "changed"
        is_time = self.poll.dead and self._monotonic() >= self._readdress_at
        return "unaddressed" if is_time else None

    def note_readdressed(self, moved: int) -> None:
        """Note how many dead envelopes became due: until there are none, the next turn seeks on."""
        if moved:
            self._must_poll = True
            return
        self._readdress_at = self._monotonic() + READDRESS_EVERY_S

    def mark_unconfirmed(self) -> None:
        """Record that replicas did not confirm a claim; back off as from a store that is away.

        The primary answers, so that the next poll would end a growing pause: it is at its longest.
        """
        self._pause_s = POLL_EVERY_S
        self.mark_unreachable()
        self.is_unconfirmed, self._is_doubted = True, False

    def mark_unreachable(self, refusal: str = "") -> None:
        """Record that the store did not answer, or why not do what was asked; back off from it."""
        now, self._is_doubted = self._monotonic(), True
        self.refusal = refusal
        if self._unreachable_since is None:
            self._unreachable_since = now
        self.is_unconfirmed = False
        self._poll_at = now + uniform(self._pause_s / 2, self._pause_s)  # noqa: S311 - jitter
        self._pause_s = min(2 * self._pause_s, POLL_EVERY_S)
        self._must_poll = True

    @property
    def is_heard(self) -> bool:
        """Whether the store answered the latest call, and does not refuse to write."""
        return self.poll.now_ms > 0 and self._unreachable_since is None

    @property
    def is_up(self) -> bool:
        """Whether the store answered the latest call, and confirmed the latest claim."""
        return self.is_heard and not self.is_unconfirmed

    @property
    def is_pausing(self) -> bool:
        """Whether the shard backs off after the store did not answer."""
        return self._unreachable_since is not None and self._monotonic() < self._poll_at

    def refresh(self) -> None:
        """Poll the store if the latest poll is stale; raises `StoreUnavailable`.

        Statistics include a poll, and so does the gauge lease; a busy shard, which needs no poll,
        fetches them separately.
        """
        now = self._monotonic()
        is_old = self._must_poll or now - self._clock.read_at >= POLL_EVERY_S
        spare_s = 0 if is_old else POLL_EVERY_S
        if now >= self._stats_at + spare_s:
            self.stats = self.store.stats()
            self._stats_at = now + STATS_EVERY_S
            self.update(self.stats.poll, is_read=True)
            self._count_aside()
        elif now >= self.gauge_lease.due_at + spare_s:
            if poll := self.gauge_lease.take(self.store):
                self.update(poll, is_read=True)
            else:
                self._must_poll = True
        elif is_old:
            self.update(self.store.next(), is_read=True)
        self.is_unconfirmed &= self._has_claimable

    def _count_aside(self) -> None:
        if self.poll.retry and self.gauge_lease.is_held:
            self.aside.go_on(self.store, ASIDE_PAGES)
        else:
            self.aside.forget()

    def now_ms(self) -> int:
        """Return the estimated store clock in epoch ms; never ahead of it. Thread-safe."""
        now_ms, read_at = self._clock
        return now_ms + round((self._monotonic() - read_at) * 1_000_000) // 1000

    def stored_bytes(self, decoded_bytes: int) -> int:
        """Estimate the bytes of records that decode to `decoded_bytes`; at most a call's."""
        return min(CALL_BYTES, max(1, int(decoded_bytes / self.inflation)))

    def note_inflation(self, claim: Claim) -> None:
        """Note how much a claim grew when it was decoded."""
        if claim.size_bytes:
            self.inflation = max(1.0, claim.decoded_bytes / claim.size_bytes)

    def is_due(self, first_ms: int) -> bool:
        """Return whether the instant `first_ms` of the latest poll has passed; False for `NONE`."""
        return NONE < first_ms <= self.now_ms()

    @property
    def counts_expiries(self) -> bool:
        """Whether an expired lease counts against its envelope: not after a long store outage."""
        return not self._was_long_away and self._monotonic() >= self._blameless_until

    @property
    def _has_claimable(self) -> bool:
        """Whether envelopes or letters are due; by now others may have had them, or cancelled."""
        poll = self.poll
        is_letter_due = self.dead_letter is not None and self.is_due(poll.first_dead_ms)
        is_due = self.is_due(poll.first_pending_ms) or self.is_due(poll.first_retry_ms)
        return bool(poll.ready or poll.suspect) or is_due or is_letter_due

    @property
    def can_resume(self) -> bool:
        """Whether envelopes of targets that are well again wait, and ready has room for them."""
        return bool(self.resuming) and not self.is_pausing and self.poll.ready < READY_FULL

    @property
    def promotable(self) -> bool:
        """Whether due envelopes have gathered long enough and ready has room for them."""
        if self._monotonic() < self._gathers_until:
            return False
        is_due = self.is_due(self.poll.first_pending_ms) or self.is_due(self.poll.first_retry_ms)
        return is_due and self.poll.ready < READY_FULL

    def sleep_s(self) -> float:
        """Return seconds until the next poll, promotion, reclaim, shunt or forget."""
        now = self._monotonic()
        if self.in_turn.locked():  # it is to end soon
            return FIRST_PAUSE_S
        if self._must_poll:
            return max(0.0, self._poll_at - now)
        waits = [self._clock.read_at + POLL_EVERY_S - now]
        waits += map(self._until_s, (self.poll.first_unack_ms, self.poll.first_forget_ms))
        if self.dead_letter is not None and not self.is_due(self.poll.first_dead_ms):
            waits.append(self._until_s(self.poll.first_dead_ms))
        if self.poll.ready < READY_FULL:
            firsts = (self.poll.first_pending_ms, self.poll.first_retry_ms)
            due_s = min(map(self._until_s, firsts))
            waits.append(max(due_s, self._gathers_until - now))
        return max(0.0, min(waits))

    def _until_s(self, first_ms: int) -> float:
        """Return seconds until an instant of the latest poll; `POLL_EVERY_S` for `NONE`."""
        if first_ms == NONE:
            return POLL_EVERY_S
        return max(0, first_ms - self.now_ms()) / 1000 + TICK_S


def claim_batch(
    view: ShardView,
    limit: int,
    limit_bytes: int,
    *,
    alone: bool = False,
    promote: int = 0,
    is_over: Callable[[], bool] = lambda: False,
) -> Claim:
    """Lease a batch in calls of `CALL_ROWS` until one is not full, all under one token.

    Once `is_over`, no further call is made. If a later call fails, return the envelopes leased so
    far; leases of the failed call expire.
    """
    lease_ms = view.route.lease
    claim = latest = view.store.claim(
        min(limit, CALL_ROWS),
        lease_ms,
        limit_bytes=view.stored_bytes(limit_bytes),
        decoded_bytes=limit_bytes,
        alone=alone,
        promote=promote,
    )
    while latest.taken == CALL_ROWS and not is_over():
        rows = min(limit - claim.taken, CALL_ROWS)
        left_bytes = limit_bytes - claim.decoded_bytes
        if rows <= 0 or left_bytes <= 0 or claim.surplus:
            break
        try:
            latest = view.store.claim(
                rows,
                lease_ms,
                limit_bytes=view.stored_bytes(left_bytes),
                decoded_bytes=left_bytes,
                token=claim.token,
            )
        except StoreError as error:
            log.warning("claim_cut_short", route=view.route.name, error=str(error))
            break
        claim = claim.joined(latest)
    view.note_inflation(claim)
    return claim
