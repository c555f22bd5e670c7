"""The routes in the store: what it has registered of them, their shards, and the shard of an id."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar
from zlib import crc32

from duebridge.config.fields import checked_name
from duebridge.config.models import Route
from duebridge.errors import StoreError, StoreUnfit
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard, routes_key
from duebridge.store.record import LAYOUT
from duebridge.store.server.connection import Connection, translated_errors

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
        repeat_for_s: float = 0.0,
        settle_for_s: float = 0.0,
    ) -> None:
        """Use the shards of a route without registering it; the rest is `DelayStore`'s."""
        self.shards = [
            DelayStore(
                connection,
                Shard(namespace, name, number),
                has_dead_letter=has_dead_letter,
                cold_tier_ms=cold_tier_ms,
                repeat_for_s=repeat_for_s,
                settle_for_s=settle_for_s,
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

        Raises `StoreUnfit` where the store has another number of shards for this route.
        """
        return cls(
            connection,
            namespace,
            route.name,
            Registry(connection, namespace, max(repeat_for_s, settle_for_s)).open_route(
                route.name, route.shards
            ),
            has_dead_letter=route.dead_letter is not None,
            cold_tier_ms=0 if route.cold_tier is None else route.max_delay,
            repeat_for_s=repeat_for_s,
            settle_for_s=settle_for_s,
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


class RegisteredRoute(NamedTuple):
    """A route as the store has it."""

    layout: int
    shards: int


class Registry:
    """The routes of a namespace. A route's number of shards never changes: ids are spread by it."""

    def __init__(self, connection: Connection, namespace: str, repeat_for_s: float = 0.0) -> None:
        """Read and open routes; `repeat_for_s` is the patience while the store is away."""
        self._connection = connection
        self._client: Any = connection.client
        self._repeat_for_s = repeat_for_s
        self._namespace = namespace
        self._key = routes_key(checked_name("namespace", namespace))

    def open_route(self, name: str, shards: int) -> int:
        """Return the route's number of shards, registered now if this is its first use.

        A later use writes nothing, so that a worker can start on a full store, and empty it.

        Raises `StoreUnfit` where the store has another number, or a layout that this version of
        duebridge does not know.
        """
        checked = checked_name("route", name)
        register = partial(self._found_or_registered, checked, f"{LAYOUT}:{shards}")
        found = _parse(name, self._connection.patiently(register, self._repeat_for_s).value)
        if found.layout > LAYOUT:
            raise StoreUnfit(
                f"route {name}: expected record layout {LAYOUT} or older; the store has"
                f" {found.layout}: upgrade duebridge"
            )
        if found.shards != shards:
            raise StoreUnfit(
                f"route {name}: expected shards: {found.shards}, as the store has it; got {shards}."
                " To change it, make a new route with that number and drain this one"
            )
        return shards

    def _found_or_registered(self, name: str, value: str) -> bytes:
        with translated_errors():
            found: bytes | None = self._client.hget(self._key, name)
            if found is None:
                self._client.hsetnx(self._key, name, value)
                found = self._client.hget(self._key, name)
        return found or b""

    def remove_route(self, name: str, shards: int) -> None:
        """Remove a route and its envelopes; an interrupted removal can be repeated.

        Each shard is unlinked by one command; the server frees its memory in the background.
        """
        with translated_errors():
            for number in range(shards):
                self._client.unlink(*Shard(self._namespace, name, number).keys())
            self._client.hdel(self._key, name)

    def routes(self) -> dict[str, RegisteredRoute]:
        """Return every route that was ever opened in the namespace."""
        with translated_errors():
            found = self._client.hgetall(self._key).items()
            names = {name.decode(errors="backslashreplace"): value for name, value in found}
            return {name: _parse(name, value) for name, value in names.items()}


def _parse(name: str, value: bytes) -> RegisteredRoute:
    layout, _, shards = value.partition(b":")
    if not (layout.isdigit() and shards.isdigit()):
        raise StoreError(f"route {name}: expected LAYOUT:SHARDS in the store; got {value[:40]!r}")
    return RegisteredRoute(int(layout), int(shards))
