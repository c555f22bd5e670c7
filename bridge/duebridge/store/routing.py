"""The shards of a route, and the shard of an id."""

from collections.abc import Callable, Iterable
from typing import Self, TypeVar
from zlib import crc32

from duebridge.config.durability import ReplicaWait, replication_of
from duebridge.config.models import Route
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.life import RouteLife
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Connection

Item = TypeVar("Item")


def shard_number(id: str, shards: int) -> int:  # noqa: A002 - the public name of the field
    """Return the shard of an id; the rule must never change, since envelopes are found by it.

    Raises `UnicodeEncodeError` for text that UTF-8 cannot carry.
    """
    return crc32(id.encode()) % shards


class RouteStore:
    """The shards of a route."""

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        name: str,
        shards: int,
        *,
        has_dead_letter: bool = False,
        cold_tier_ms: int = 0,
        waits_for: ReplicaWait | None = None,
        repeat_for_s: float = 0.0,
        settle_for_s: float = 0.0,
        life: RouteLife | None = None,
    ) -> None:
        """Use the shards of a route without registering it; the rest is `DelayStore`'s."""
        life = life or RouteLife(Registry(connection, namespace, repeat_for_s), name, shards)
        self.shards = [
            DelayStore(
                connection,
                Shard(namespace, name, number),
                has_dead_letter=has_dead_letter,
                cold_tier_ms=cold_tier_ms,
                waits_for=waits_for,
                repeat_for_s=repeat_for_s,
                settle_for_s=settle_for_s,
                life=life,
            )
            for number in range(shards)
        ]

    @classmethod
    def open(
        cls,
        connection: Connection,
        namespace: str,
        route: Route,
        *,
        repeat_for_s: float = 0.0,
        settle_for_s: float = 0.0,
    ) -> Self:
        """Open a route of the configuration, which fixes its number of shards in the store.

        Raises `StoreUnfit` where the store has another number of shards for this route; so does
        every writing call, once the route was removed and recreated with another number.
        """
        registry = Registry(connection, namespace, max(repeat_for_s, settle_for_s))
        life = RouteLife(registry, route.name, route.shards, registers=True)
        return cls(
            connection,
            namespace,
            route.name,
            life.look(),
            has_dead_letter=route.dead_letter is not None,
            cold_tier_ms=0 if route.cold_tier is None else route.max_delay,
            waits_for=replication_of(route.durability),
            repeat_for_s=repeat_for_s,
            settle_for_s=settle_for_s,
            life=life,
        )

    def of(self, id: str) -> DelayStore:  # noqa: A002 - the public name of the field
        """Return the shard of an id; raises `UnicodeEncodeError` as `shard_number` does."""
        return self.shards[shard_number(id, len(self.shards))]

    def by_shard(
        self, items: Iterable[Item], id_of: Callable[[Item], str]
    ) -> list[tuple[DelayStore, list[Item]]]:
        """Return the items of each shard that has some, in their order."""
        found: dict[int, list[Item]] = {}
        for item in items:
            found.setdefault(shard_number(id_of(item), len(self.shards)), []).append(item)
        return [(self.shards[number], some) for number, some in found.items()]
