"""The figures of a shard: the poll that every transition answers, and the stats for people."""

from typing import NamedTuple

NONE = -1
BEYOND_ANY_TIME = 2**52  # scores from here on: lua/shared/dead.lua


class Poll(NamedTuple):
    """Counts by state and the first score of each state, in ms; -1 for none.

    The order is lua/shared/poll.lua's.
    """

    now_ms: int
    pending: int
    ready: int
    suspect: int
    unack: int
    retry: int
    dead: int
    first_pending_ms: int
    first_suspect_ms: int
    first_unack_ms: int
    first_retry_ms: int
    first_dead_ms: int
    first_forget_ms: int
    hydrated_until_ms: int

    @property
    def envelopes(self) -> int:
        """The number of envelopes in the shard, in any state."""
        return self.pending + self.ready + self.suspect + self.unack + self.retry + self.dead

    @property
    def has_cold(self) -> bool:
        """Whether the route ever used its cold tier."""
        return self.hydrated_until_ms != NONE

    @property
    def cold_left_ms(self) -> int:
        """The time until a cold envelope may be late; below 0: one may be late now."""
        return self.hydrated_until_ms - self.now_ms

    @property
    def waiting(self) -> int:
        """The number of envelopes that are still to be delivered."""
        return self.envelopes - self.dead


class Stats(NamedTuple):
    """The poll, and further figures for people and gauges; an instant is -1 for none.

    `due` counts envelopes that wait for delivery now, without a lease. `scheduled` counts how often
    an envelope was given a due instant (accepted, replaced, rescheduled or replayed) since the
    shard's first use. `journal_newest` counts the entries ever written, `journal_kept` those
    that an outside table has, -1 for none. `rejected` counts the dead whose dead-letter target
    rejects them for good.
    """

    poll: Poll
    due: int
    due_within_60s: int
    due_within_300s: int
    oldest_due_at_ms: int
    journal_entries: int
    memories: int
    scheduled: int
    journal_newest: int
    journal_kept: int
    rejected: int

    @property
    def oldest_due_age_ms(self) -> int:
        """The time since the oldest undelivered envelope became due; 0 when none is."""
        if self.oldest_due_at_ms == NONE:
            return 0
        return max(0, self.poll.now_ms - self.oldest_due_at_ms)

    @property
    def journal_lag(self) -> int | None:
        """The number of entries that no outside table has yet; None where none was ever kept."""
        return (
            None if self.journal_kept == NONE else max(0, self.journal_newest - self.journal_kept)
        )

    @property
    def journal_left(self) -> int | None:
        """The number of entries, of the present size, until the cap cuts one that no table has.

        None where none was ever kept, or nothing was cut yet.
        """
        if self.journal_lag is None or self.journal_newest <= self.journal_entries:
            return None
        return max(0, self.journal_entries - self.journal_lag)
