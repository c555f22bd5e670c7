"""What the driver settles before the first row: options, columns, the store and its shards.

Tasks receive references (`${VAR}`), never the secrets behind them: each process resolves its own.
A read needs no configuration: the store knows how many shards a route has.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from uuid import uuid4

import msgspec
from pyspark.sql.types import StructType

from duebridge.config.load import load_config
from duebridge.config.models import Config, Route
from duebridge.config.secrets import resolve_at
from duebridge.errors import ConfigError
from duebridge.producer import find_route
from duebridge.store.connection import Connection, opened_connection
from duebridge.store.delay_store import DelayStore
from duebridge.store.fitness import check_fitness
from duebridge.store.keys import Shard, checked_name
from duebridge.store.registry import Registry
from duebridge_connectors.spark.source.options import (
    JournalOptions,
    ReadOptions,
    StoreOptions,
    WriteOptions,
    journal_options,
    read_options,
    write_options,
)
from duebridge_connectors.spark.source.schema import check_columns


class StoreAddress(msgspec.Struct, frozen=True):
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


def store_address(where: StoreOptions, config: Config | None) -> StoreAddress:
    """Return the store that the options name; they win over the configuration."""
    store = config.store if config else None
    namespace = where.namespace or (store.namespace if store else "duebridge")
    url = where.store or (store.url if store else "")
    return StoreAddress(
        url,
        checked_name("option namespace", namespace),
        where.store_deadline / 1000,
        store.allow_unfit if store else (),
    )


def load_given_config(where: StoreOptions) -> Config | None:
    """Return the configuration that the options name; raises `ConfigError`."""
    return None if where.config is None else load_config(where.config)


def shards_to_read(place: StoreAddress, routes: tuple[str, ...]) -> list[Shard]:
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


def open_route(place: StoreAddress, config: Config, name: str) -> tuple[Route, int]:
    """Return a route and its number of shards, its first use included.

    Raises `ConfigError`, `StoreUnavailable`, and `StoreUnfit` for a store that may hold nothing.
    """
    route = find_route(config, name)
    with place.opened() as connection:
        check_fitness(connection, place.allow_unfit)
        connection.load_scripts()
        return route, Registry(connection, place.namespace).open_route(name, route.shards)


class WriteJob(msgspec.Struct, frozen=True):
    """What every task of a write needs."""

    options: WriteOptions
    place: StoreAddress
    route: Route
    shards: int
    broker_type: str
    run: str


_CHECKPOINT = "checkpointLocation"


def plan_write(given: Mapping[str, str], schema: StructType, overwrite: bool = False) -> WriteJob:
    """Return what every task of a write needs; nothing is written yet.

    Raises `ConfigError` for options and columns, `StoreUnavailable` and `StoreUnfit`.
    """
    options = write_options(given)
    if overwrite:
        raise ConfigError('expected mode("append"): nothing takes back what is scheduled')
    check_columns(schema, options.id_columns)
    config = load_given_config(options)
    if config is None:
        raise ConfigError("option config: missing")
    place = store_address(options, config)
    route, shards = open_route(place, config, options.route)
    run = options.run or _run_of(given.get(_CHECKPOINT))
    return WriteJob(options, place, route, shards, config.brokers[route.target.broker].type, run)


def plan_read(given: Mapping[str, str]) -> tuple[ReadOptions, StoreAddress, list[Shard]]:
    """Return what a read of the store needs; raises `ConfigError` and `StoreUnavailable`."""
    options = read_options(given)
    place = store_address(options, load_given_config(options))
    return options, place, shards_to_read(place, options.route)


def plan_journal(given: Mapping[str, str]) -> tuple[JournalOptions, StoreAddress, list[Shard]]:
    """Return what a read of the journal needs; raises `ConfigError` and `StoreUnavailable`."""
    options = journal_options(given)
    place = store_address(options, load_given_config(options))
    return options, place, shards_to_read(place, options.route)


def _run_of(checkpoint: str | None) -> str:
    """Return a name for this run; a stream's is its checkpoint's, so that it outlives a restart."""
    return uuid4().hex[:12] if checkpoint is None else sha256(checkpoint.encode()).hexdigest()[:12]
