"""The store of a job: read from the options on the driver, opened anew in every task.

What travels to a task holds references (`${VAR}`), never what they stand for: each process
resolves its own. A store without a configuration is enough to read: the store itself knows how many
shards a route has.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from duebridge.config.load import load_config
from duebridge.config.models import Config, Route
from duebridge.config.secrets import resolve_at
from duebridge.errors import ConfigError
from duebridge.producer import find_route
from duebridge.store.connection import Connection, opened_connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.fitness import check_fitness
from duebridge.store.keys import Shard, checked_name
from duebridge.store.routes import Registry
from duebridge_connectors.spark.options import Where


class Place(msgspec.Struct, frozen=True):
    """Where a store is; `url` keeps its references."""

    url: str
    namespace: str
    repeat_for_s: float
    allow_unfit: tuple[str, ...] = ()

    @contextmanager
    def opened(self) -> Iterator[Connection]:
        """Give a connection; raises `ConfigError` and `StoreError`, without the url."""
        with opened_connection(str(resolve_at("store.url", self.url))) as connection:
            yield connection

    def now_ms(self) -> int:
        """Return the store's time; raises `ConfigError` and `StoreError`."""
        with self.opened() as connection:  # a route that need not exist: next only reads
            return DelayStore(connection, Shard(self.namespace, "clock", 0)).next().now_ms


def place_of(where: Where, config: Config | None) -> Place:
    """Return the store that the options name; they win over the configuration."""
    store = config.store if config else None
    namespace = where.namespace or (store.namespace if store else "duebridge")
    url = where.store or (store.url if store else "")
    return Place(
        url,
        checked_name("option namespace", namespace),
        where.store_deadline / 1000,
        store.allow_unfit if store else (),
    )


def config_of(where: Where) -> Config | None:
    """Return the configuration that the options name; raises `ConfigError`."""
    return None if where.config is None else load_config(where.config)


def shards_to_read(place: Place, routes: tuple[str, ...]) -> list[Shard]:
    """Return the shards of routes as the store has them, all routes where none is named.

    Raises `ConfigError` for a route that nobody ever used, and `StoreError`.
    """
    with place.opened() as connection:
        known = Registry(connection, place.namespace).routes()
    for name in routes:
        if name not in known:
            used = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"option route: expected routes of the store ({used}); got {name!r}")
    return [
        Shard(place.namespace, name, number)
        for name in routes or sorted(known)
        for number in range(known[name].shards)
    ]


def open_route(place: Place, config: Config, name: str) -> tuple[Route, int]:
    """Return a route and its number of shards, its first use included.

    Raises `ConfigError`, `StoreUnavailable`, and `StoreUnfit` for a store that may hold nothing.
    """
    route = find_route(config, name)
    with place.opened() as connection:
        check_fitness(connection, place.allow_unfit)
        connection.load_scripts()
        return route, Registry(connection, place.namespace).open_route(name, route.shards)
