"""What every transition answers: all that a worker needs to decide what to do next."""

from typing import NamedTuple

NONE = -1


class Poll(NamedTuple):
    """Counts by state and the first score of each, in ms; -1 where there is none.

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
    held_since_ms: int
    first_forget_ms: int
    hydrated_until_ms: int

    @property
    def envelopes(self) -> int:
        """How many envelopes the shard holds, whatever their state."""
        return self.pending + self.ready + self.suspect + self.unack + self.retry + self.dead

    @property
    def has_cold(self) -> bool:
        """Whether something went to the cold tier, ever."""
        return self.hydrated_until_ms != NONE

    @property
    def cold_left_ms(self) -> int:
        """How long until what is cold may be late, where something is; less than 0: it may be."""
        return self.hydrated_until_ms - self.now_ms

    @property
    def waiting(self) -> int:
        """How many are still to be delivered."""
        return self.envelopes - self.dead

    @property
    def is_held(self) -> bool:
        """Whether the route's target failed and nothing was confirmed since."""
        return self.held_since_ms != NONE
