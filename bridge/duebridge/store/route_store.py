"""The delay store of one whole route: every id has its shard, and always the same."""

from zlib import crc32

from duebridge.config.models import Route
from duebridge.store.connection import Connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.registry import Registry


def shard_number(id: str, shards: int) -> int:  # noqa: A002 - the public name of the field
    """Return the shard of an id; it must never change, since envelopes are found by it.

    Raises `UnicodeEncodeError` for text that UTF-8 cannot carry.
    """
    return crc32(id.encode()) % shards


class RouteStore:
    """The shards of a route; opening it fixes their number in the store."""

    def __init__(
        self, connection: Connection, namespace: str, route: Route, repeat_for_s: float = 0.0
    ) -> None:
        """Raises `StoreUnfit` where the store has another number of shards for this route."""
        self.route = route
        shards = Registry(connection, namespace).open_route(route.name, route.shards)
        self.shards = [
            DelayStore(
                connection,
                Shard(namespace, route.name, number),
                has_dead_letter=route.dead_letter is not None,
                cold_tier_ms=0 if route.cold_tier is None else route.max_delay,
                repeat_for_s=repeat_for_s,
            )
            for number in range(shards)
        ]

    def of(self, id: str) -> DelayStore:  # noqa: A002 - the public name of the field
        """Return the shard that an id belongs to."""
        return self.shards[shard_number(id, len(self.shards))]
