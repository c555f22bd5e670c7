"""The lease of a route's cold tier: it excludes jobs that would undo each other.

    occupy each shard ─▶ renew, in a thread ─▶ turn: an earlier token is refused ─▶ vacate

It lives in the store, by the store's clock. A killed job's lease runs out; a job that was stopped
for longer finds it lost, and the scripts refuse what it still sends.
"""

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Self

from duebridge.durations import format_instant
from duebridge.errors import JobFailed, StoreError
from duebridge.store.delay_store import DelayStore
from duebridge.store.wire.replies import OccupyReply, read_text

LEASE_MS = 15_000
RENEWALS = 3  # within the time of a lease
ASK_EVERY_S = 0.5


class ColdLease:
    """The lease of all shards of a route. May be used by several threads."""

    def __init__(self, stores: Sequence[DelayStore], job: str, lease_ms: int = LEASE_MS) -> None:
        self._stores = stores
        self._who = f"{job} on {socket.gethostname()} (process {os.getpid()})"
        self._lease_ms = lease_ms
        self._token = token_hex(8)
        self._calling = threading.Lock()
        self._ended = threading.Event()
        self._lost: JobFailed | None = None

    @classmethod
    @contextmanager
    def held(
        cls, stores: Sequence[DelayStore], job: str, wait_ms: int = 0, lease_ms: int = LEASE_MS
    ) -> Iterator[Self]:
        """Hold the lease; raises `JobFailed`, which names the holder, and `StoreError`.

        Waits for the end of a lease that nobody renews, and `wait_ms` for one that is.
        """
        lease = cls(stores, job, lease_ms)
        lease.take(wait_ms)
        renewing = threading.Thread(target=lease._renew, name="cold lease", daemon=True)
        renewing.start()
        try:
            yield lease
        finally:
            lease._ended.set()
            renewing.join()
            lease.give_back()

    @property
    def token(self) -> str:
        """The token that the holder's calls carry."""
        return self._token

    def take(self, wait_ms: int = 0) -> None:
        """Take the lease of every shard, in order, or of none."""
        for number, store in enumerate(self._stores):
            try:
                self._take_one(store, wait_ms)
            except (JobFailed, StoreError):
                self.give_back(number)
                raise

    def _take_one(self, store: DelayStore, wait_ms: int) -> None:
        patient_until = None
        while not (found := store.occupy(self._token, self._lease_ms, self._who)).did:
            if patient_until is None:  # a killed holder's lease ends by then
                patient_until = found.until_ms + wait_ms
            if found.now_ms > patient_until:
                raise JobFailed(_held_by(store, found))
            self._ended.wait(ASK_EVERY_S)

    def check(self) -> None:
        """Renew now; raises `JobFailed` if the lease is lost, and `StoreError`."""
        self._occupy(self._token)

    def turn(self) -> None:
        """Change the token: what was sent with the one of before, and is still on its way, fails.

        Raises as `check` does.
        """
        self._occupy(token_hex(8))

    def _occupy(self, token: str) -> None:
        with self._calling:
            if self._lost is not None:
                raise self._lost
            for store in self._stores:
                found = store.occupy(token, self._lease_ms, self._who, self._token)
                if not found.did:
                    self._lost = JobFailed(f"the lease of the cold tier ran out: {_whose(found)}")
                    raise self._lost
            self._token = token

    def _renew(self) -> None:
        """Renew until the end. A store that is away is asked again; a lost lease stays lost."""
        while not self._ended.wait(self._lease_ms / 1000 / RENEWALS):
            try:
                self.check()
            except JobFailed:
                return
            except StoreError:
                continue

    def give_back(self, count: int | None = None) -> None:
        """Give it back, of the first `count` shards; a store that is away lets it run out."""
        for store in self._stores[:count]:
            with suppress(StoreError):
                store.vacate(self._token)


def _held_by(store: DelayStore, found: OccupyReply) -> str:
    return f"route {store.shard.route}: its cold tier is in use: {_whose(found)}; nothing was done"


def _whose(found: OccupyReply) -> str:
    if not found.who:
        return "another job had it meanwhile"
    since = format_instant(found.since_ms)
    return f"{read_text(found.who)} has it since {since}"
