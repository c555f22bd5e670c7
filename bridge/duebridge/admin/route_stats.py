"""A route's envelopes by state, over all its shards."""

from collections.abc import Sequence

import msgspec

from duebridge.admin.held import HeldStats
from duebridge.store.wire.poll import Stats

LATE_MS = 60_000


class RouteStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """A route's envelopes by state, over all its shards; `ready` includes suspects.

    `oldest_due_age_ms` is how long the oldest undelivered envelope has been due, 0 if none is.
    `held` are its failing targets, as the workers say; `held_since_ms` is the epoch ms of the first
    failure of those that are no dead-letter targets, 0 without one. `cold_left_ms` is how long cold
    envelopes can wait for the next hydrate, None without a cold tier. `configured` is false if only
    the store has the route. `rejected` are the dead whose dead-letter target rejects them for good.
    `suspects` are the ready ones whose lease ran out twice: they are claimed alone.
    """

    route: str
    pending: int
    ready: int
    unack: int
    retry: int
    dead: int
    oldest_due_age_ms: int
    held_since_ms: int
    shards: int
    configured: bool = True
    cold_left_ms: int | None = None
    held: tuple[HeldStats, ...] = ()
    rejected: int = 0
    suspects: int = 0

    @property
    def waiting(self) -> int:
        """The number of envelopes still to be delivered."""
        return self.pending + self.ready + self.unack + self.retry

    @property
    def is_late(self) -> bool:
        """Whether an undelivered envelope has been due for more than a minute."""
        return self.oldest_due_age_ms > LATE_MS


def summed(name: str, found: Sequence[Stats], *, configured: bool) -> RouteStats:
    """Return the stats of a route from those of its shards; without what holds its targets."""
    polls = [stats.poll for stats in found]
    return RouteStats(
        route=name,
        pending=sum(poll.pending for poll in polls),
        ready=sum(poll.ready + poll.suspect for poll in polls),
        unack=sum(poll.unack for poll in polls),
        retry=sum(poll.retry for poll in polls),
        dead=sum(poll.dead for poll in polls),
        oldest_due_age_ms=max(stats.oldest_due_age_ms for stats in found),
        held_since_ms=0,
        shards=len(found),
        configured=configured,
        cold_left_ms=min((poll.cold_left_ms for poll in polls if poll.has_cold), default=None),
        rejected=sum(stats.rejected for stats in found),
        suspects=sum(poll.suspect for poll in polls),
    )
