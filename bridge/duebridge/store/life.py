"""A client's view of a route's life, which it refreshes when the store refuses a call."""

import threading
from collections.abc import Callable

from duebridge.errors import OtherLife, RenewalNeeded, StoreUnavailable
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Reply
from duebridge.store.server.forks import renew_after_fork

MOST_REFUSALS = 8  # of one call, while a route is recreated repeatedly


class RouteLife:
    """The life of a route as its client last saw it; may be shared by threads.

    A refused call certainly did not run, so that any call, a claim too, is repeated.
    """

    def __init__(
        self, registry: Registry, route: str, shards: int | None = None, *, registers: bool = False
    ) -> None:
        """Begin without an epoch. `shards` is the number that ids are spread by, None for any.

        `registers` registers a route that is gone, as opening it does.
        """
        self._registry = registry
        self._route = route
        self._shards = shards
        self._registers = registers
        self._text = ""
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Make a new lock for a forked child."""
        self._looking = threading.Lock()

    def look(self) -> int:
        """Open the route's present life; return its number of shards.

        Raises `StoreUnfit` where the client's shards are others, or the route is gone.
        """
        life = self._registry.open_life(self._route, self._shards, registers=self._registers)
        self._text = life.text
        return life.shards

    def run_with_epoch(self, call: Callable[[str], Reply], renew: Callable[[str], object]) -> Reply:
        """Run a call with the route's epoch; refresh the epoch and repeat if the server refuses it.

        Raises as the call does, and as `look`.
        """
        for refusals in range(MOST_REFUSALS):
            known = self._text
            try:
                reply = call(known)
                # before a failover it may have run, and its answer was lost
                return Reply(reply.value, reply.repeated or refusals > 0)
            except OtherLife:
                self._look_again(known)
            except RenewalNeeded:
                self._renewed(renew, known)
        raise StoreUnavailable(
            f"route {self._route}: gave up after {MOST_REFUSALS} changes of the route"
        )

    def _look_again(self, known: str) -> None:
        with self._looking:
            if self._text == known:  # no other thread has looked since
                self.look()

    def _renewed(self, renew: Callable[[str], object], known: str) -> None:
        try:
            renew(known)
        except OtherLife:
            self._look_again(known)
