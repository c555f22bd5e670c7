"""Calls of scripts on one shard: with its keys, its route's life, durability, and patience."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from duebridge.config.durability import ReplicaWait
from duebridge.errors import Indeterminate, StoreError, StoreUnavailable
from duebridge.store.batching import CallId, new_call_id
from duebridge.store.caller import current_actor
from duebridge.store.keys import Shard
from duebridge.store.life import RouteLife
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Argument, Connection, Reply
from duebridge.store.server.durability import WAITING
from duebridge.store.server.scripts import script
from duebridge.store.wire.leases import give_back
from duebridge.store.wire.replies import SettleReply, StaleReply, read_reply, read_text

JOURNAL_CAP_BYTES = 64 * 1024 * 1024
KEEP_ANSWER_FACTOR = 2  # of the time that a client repeats a call
LEAST_KEPT_ANSWER_MS = 60_000


class ShardCalls:
    """Runs scripts on a shard; `DelayStore` has a method for each."""

    def __init__(
        self,
        connection: Connection,
        shard: Shard,
        *,
        has_dead_letter: bool = False,
        cold_tier_ms: int = 0,
        waits_for: ReplicaWait | None = None,
        journal_cap_bytes: int = JOURNAL_CAP_BYTES,
        repeat_for_s: float = 0.0,
        settle_for_s: float | None = None,
        now_ms: Callable[[], int] | None = None,
        life: RouteLife | None = None,
    ) -> None:
        """Work on `shard`; `now_ms` replaces the server's clock, for tests only.

        `life` is shared by the shards of a route; without it the first write looks it up.
        `cold_tier_ms` is when a note on cold rows is looked at again, 0 on a route without them.
        `settle_for_s` is `repeat_for_s` if not given.
        """
        self.shard = shard
        self._connection = connection
        self._keys = shard.keys()
        self._dead_score = "" if has_dead_letter else "+inf"
        self._cold_tier_ms = cold_tier_ms
        self._waits_for = waits_for
        self._journal_cap_bytes = journal_cap_bytes
        self._repeat_for_s = repeat_for_s
        self._settle_for_s = repeat_for_s if settle_for_s is None else settle_for_s
        self._keep_ms = max(LEAST_KEPT_ANSWER_MS, int(KEEP_ANSWER_FACTOR * repeat_for_s * 1000))
        self._now_ms = now_ms
        registry = Registry(connection, shard.namespace, repeat_for_s)
        self._life = life or RouteLife(registry, shard.route)

    @property
    def node(self) -> str:
        """The Cluster's node that has the shard, by name; empty on one server."""
        return self._connection.node_of(self.shard.wake)

    @property
    def is_away(self) -> bool:
        """Whether the server that has the shard did not answer its latest call."""
        return self._connection.is_away(self.shard.wake)

    def _call_id(self, given: CallId | None) -> CallId:
        return CallId(new_call_id(), self._keep_ms) if given is None else given

    def _settle(self, name: str, *arguments: Argument) -> SettleReply:
        reply = self._call(name, arguments, self._settle_for_s)
        poll, *ids = read_reply(reply.value, StaleReply)
        stale, marked = ([read_text(each) for each in some] for some in ids)
        return SettleReply(poll, stale, reply.repeated, marked)

    def _run(
        self, name: str, *arguments: Argument, ids: Sequence[str] = (), is_repeated: bool = True
    ) -> Any:
        try:
            return self._call(name, arguments, self._repeat_for_s if is_repeated else 0.0).value
        except StoreUnavailable as error:
            raise error.about(ids) from error

    def _lease(self, name: str, *arguments: Argument) -> Any:
        try:
            return self._call(name, arguments, 0.0).value
        except Indeterminate as error:
            with suppress(StoreError):  # else the leases run out
                for ending, given in give_back(name, error.reply):
                    self._call(ending, given, 0.0)
            raise

    def _call(self, name: str, arguments: Sequence[Argument], repeat_for_s: float) -> Reply:
        def call(called: str, life: str, *given: Argument) -> Reply:
            now: Argument = "" if self._now_ms is None else self._now_ms()
            wanted = self._waits_for if called in WAITING else None
            cap = f"{'+' if wanted else ''}{self._journal_cap_bytes}"
            actor = current_actor(self._connection.actor)
            whole = (now, f"{cap} {actor}" if actor else cap, life, *given)
            return self._connection.run(script(called), self._keys, whole, repeat_for_s, wanted)

        return self._life.run_with_epoch(
            lambda life: call(name, life, *arguments), partial(call, "renew")
        )
