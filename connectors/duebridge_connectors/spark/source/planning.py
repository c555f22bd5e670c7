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

from duebridge.config.durability import DurabilityNeeds, ReplicaWait, replication_of
from duebridge.config.fields import checked_name
from duebridge.config.load import load_config
from duebridge.config.models import Config, Route
from duebridge.config.secrets import resolve_at
from duebridge.errors import ConfigError
from duebridge.scheduling.limits import RouteLimits
from duebridge.scheduling.route_scheduler import find_route
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.registry import Registry
from duebridge.store.routing import RouteStore
from duebridge.store.server.connection import Connection, opened_connection
from duebridge.store.server.fitness import check_fitness
from duebridge_connectors.spark.files.location import Stores
from duebridge_connectors.spark.rows.packing import Packer
from duebridge_connectors.spark.rows.schema import check_columns
from duebridge_connectors.spark.source.connections import task_connection
from duebridge_connectors.spark.source.options import (
    CappedOptions,
    JournalOptions,
    ReadOptions,
    StoreOptions,
    WriteOptions,
    journal_options,
    read_options,
    write_options,
)
from duebridge_connectors.spark.source.rejects import check_rejects


class StoreAddress(msgspec.Struct, frozen=True):
    """The store's address for a process; `url` keeps its references.

    The only place of the connector that opens the shards of a route.
    """

    url: str
    namespace: str
    repeat_for_s: float
    allow_unfit: tuple[str, ...] = ()
    waits_for: Mapping[str, ReplicaWait] = {}  # by route
    needs: DurabilityNeeds = DurabilityNeeds()
    keeps_connections: bool = True
    """Whether a task leaves its connection to the next one of its process."""

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Open a connection; raises `ConfigError` and `StoreError`, which never show the url."""
        with opened_connection(self._resolved_url()) as connection:
            yield connection

    @contextmanager
    def connect_task(self, actor: str = "") -> Iterator[Connection]:
        """Give the connection of a task, which calls in a person's name; raises as `connect`."""
        keeps = self.keeps_connections
        with task_connection(self._resolved_url(), is_kept=keeps) as connection:
            connection.actor = actor  # one that was kept has the name of the task before
            yield connection

    def _resolved_url(self) -> str:
        return str(resolve_at("store.url", self.url))

    def now_ms(self) -> int:
        """Return the store's time; raises `ConfigError` and `StoreError`."""
        with self.connect() as connection:  # `next` only reads, so the route need not exist
            return self.delay_store(connection, Shard(self.namespace, "clock", 0)).next().now_ms

    def shards(self, route: str, count: int) -> tuple[Shard, ...]:
        """Return the shards of a route by their numbers."""
        return tuple(Shard(self.namespace, route, number) for number in range(count))

    def delay_store(
        self, connection: Connection, shard: Shard, cold_tier_ms: int = 0
    ) -> DelayStore:
        """Open a shard; `cold_tier_ms` is when notes on cold rows are looked at again."""
        return DelayStore(
            connection,
            shard,
            cold_tier_ms=cold_tier_ms,
            waits_for=self.waits_for.get(shard.route),
            repeat_for_s=self.repeat_for_s,
        )

    def delay_stores(
        self, connection: Connection, route: str, count: int, cold_tier_ms: int = 0
    ) -> list[DelayStore]:
        """Open all shards of a route; `cold_tier_ms` is as of `delay_store`."""
        return RouteStore(
            connection,
            self.namespace,
            route,
            count,
            cold_tier_ms=cold_tier_ms,
            waits_for=self.waits_for.get(route),
            repeat_for_s=self.repeat_for_s,
        ).shards


def store_address(where: StoreOptions, config: Config | None) -> StoreAddress:
    """Return the address of the store; the options win over the configuration."""
    store = config.store if config else None
    namespace = where.namespace or (store.namespace if store else "duebridge")
    url = where.store or (store.url if store else "")
    return StoreAddress(
        url,
        checked_name("option namespace", namespace),
        where.store_deadline / 1000,
        store.allow_unfit if store else (),
        _waits_for(config.routes) if config else {},
        config.needs if config else DurabilityNeeds(),
        not (isinstance(where, CappedOptions) and where.max_connections),
    )


def _waits_for(routes: Mapping[str, Route]) -> dict[str, ReplicaWait]:
    found = {name: replication_of(route.durability) for name, route in routes.items()}
    return {name: waits_for for name, waits_for in found.items() if waits_for is not None}


def given_store(where: StoreOptions) -> StoreAddress:
    """Return the address of the store by options alone; raises `ConfigError`."""
    return store_address(where, None if where.config is None else load_config(where.config))


def shards_to_read(address: StoreAddress, routes: tuple[str, ...]) -> list[Shard]:
    """Return the shards that the store has of these routes, or of all routes if none is named.

    Raises `ConfigError` for a route that the store does not know, and `StoreError`.
    """
    with address.connect() as connection:
        known = Registry(connection, address.namespace).routes()
    for name in routes:
        if name not in known:
            used = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"option route: expected routes of the store ({used}); got {name!r}")
    return [
        shard
        for name in routes or sorted(known)
        for shard in address.shards(name, known[name].shards)
    ]


def open_route(address: StoreAddress, config: Config, name: str) -> tuple[Route, int]:
    """Return a route and its number of shards, which the first use of the route fixes.

    Raises `ConfigError`, `StoreUnavailable`, and `StoreUnfit` for a store that fails its checks.
    """
    route = find_route(config, name)
    with address.connect() as connection:
        check_fitness(connection, address.allow_unfit, address.repeat_for_s, address.needs)
        connection.load_scripts(address.repeat_for_s)
        registry = Registry(connection, address.namespace, address.repeat_for_s)
        return route, registry.open_route(name, route.shards)


class WriteJob(msgspec.Struct, frozen=True):
    """A planned write, as every task receives it."""

    options: WriteOptions
    address: StoreAddress
    limits: RouteLimits
    shards: int
    run: str
    stores: Stores = Stores()

    @property
    def route(self) -> Route:
        """The route that is written to."""
        return self.limits.route

    def packer(self) -> Packer:
        """Return a packer for one task."""
        options = self.options
        return Packer(
            self.limits,
            options.remember,
            options.id_columns,
            trusts_packed=bool(options.cold_lease),
        )


def plan_write(
    given: Mapping[str, object], schema: StructType, overwrite: bool = False
) -> WriteJob:
    """Validate a write and return its plan; no row is written yet.

    Raises `ConfigError` for options, columns and rejects that cannot be written, `StoreUnavailable`
    and `StoreUnfit`.
    """
    options = write_options(given)
    if overwrite:
        raise ConfigError('expected mode("append"): nothing takes back what is scheduled')
    check_columns(schema, options.id_columns)
    config = load_config(str(options.config))
    stores = Stores.of(config)
    if options.rejects is not None:
        check_rejects(stores.place(options.rejects))
    address = store_address(options, config)
    route, shards = open_route(address, config, options.route)
    checkpoint = given.get("checkpointLocation")  # a stream keeps the name of its run
    digest = uuid4().hex if checkpoint is None else sha256(str(checkpoint).encode()).hexdigest()
    run = options.run or digest[:12]
    limits = RouteLimits.of(config, route)
    return WriteJob(options, address, limits, shards, run, stores)


def plan_read(given: Mapping[str, object]) -> tuple[ReadOptions, StoreAddress, list[Shard]]:
    """Validate a read of the store; raises `ConfigError` and `StoreUnavailable`."""
    options = read_options(given)
    address = given_store(options)
    return options, address, shards_to_read(address, options.route)


def plan_journal(given: Mapping[str, object]) -> tuple[JournalOptions, StoreAddress, list[Shard]]:
    """Validate a read of the journal; raises `ConfigError` and `StoreUnavailable`."""
    options = journal_options(given)
    address = given_store(options)
    return options, address, shards_to_read(address, options.route)
