"""What the store itself knows of its routes: record layout and number of shards, from first use."""

from typing import Any, NamedTuple

from duebridge.errors import StoreError, StoreUnfit
from duebridge.store.connection import Connection, translated_errors
from duebridge.store.keys import Shard, checked_name, routes_key
from duebridge.store.record import LAYOUT


class RegisteredRoute(NamedTuple):
    """A route as the store has it."""

    layout: int
    shards: int


class Registry:
    """The routes of a namespace. Envelopes are spread by number of shards: it never changes."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._client: Any = connection.client
        self._namespace = namespace
        self._key = routes_key(checked_name("namespace", namespace))

    def open_route(self, name: str, shards: int) -> int:
        """Return the route's number of shards, written now if this is its first use.

        Raises `StoreUnfit` where the store has another number, or a layout that this version of
        duebridge does not know.
        """
        with translated_errors():
            self._client.hsetnx(self._key, checked_name("route", name), f"{LAYOUT}:{shards}")
            found = _parse(name, self._client.hget(self._key, name))
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

    def remove_route(self, name: str, shards: int) -> None:
        """Remove a route with all that is in it; an interrupted removal is found and done again.

        Each shard goes whole, in one command; the server frees its memory beside its other work.
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
