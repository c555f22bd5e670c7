"""A route's cold tier: its settings, its files and the marks in the store that bind its rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from uuid import uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import StructType

from duebridge.config.load import load_config
from duebridge.config.models import ColdTier, Route
from duebridge.errors import ConfigError
from duebridge.store.batching import in_calls
from duebridge.store.cold import ColdNotes, Mark
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge_connectors.spark.cold.commit_log import ColdLog, boundary_ms
from duebridge_connectors.spark.cold.parquet_files import (
    ColdRead,
    read_files,
)
from duebridge_connectors.spark.source.options import StoreOptions
from duebridge_connectors.spark.source.planning import StoreAddress, open_route, store_address
from duebridge_connectors.spark.source.schema import COLD

TASK_FILES = 256  # that one task reads, one after another


class Tier(msgspec.Struct, frozen=True):
    """Where cold rows of a route are, and the store that they came from."""

    place: StoreAddress
    route: Route
    settings: ColdTier
    shards: tuple[Shard, ...]
    log: ColdLog

    @contextmanager
    def opened(self) -> Iterator[list[ColdNotes]]:
        """Give what the store knows of the tier, a shard each; raises `StoreError`."""
        with self.place.opened() as connection:
            yield [ColdNotes(connection, shard) for shard in self.shards]

    def now_ms(self) -> int:
        """Return the store's time; raises `StoreError`."""
        with self.place.opened() as connection:
            store = DelayStore(connection, self.shards[0], repeat_for_s=self.place.repeat_for_s)
            return store.next().now_ms

    def boundary_ms(self) -> int:
        """Return before which instant an envelope belongs in the store now."""
        return boundary_ms(self.now_ms(), self.settings.horizon)


def open_tier(config: str, route: str) -> Tier:
    """Return the cold tier of a route; raises `ConfigError` where it has none, and `StoreError`."""
    where = StoreOptions(config=config)
    loaded = load_config(config)
    place = store_address(where, loaded)
    found, shards = open_route(place, loaded, route)
    if found.cold_tier is None:
        raise ConfigError(f"routes.{route}.cold_tier: expected a path and a horizon; got none")
    numbers = (Shard(place.namespace, route, number) for number in range(shards))
    log = ColdLog(found.cold_tier.path, route)
    return Tier(place, found, found.cold_tier, tuple(numbers), log)


def new_batch(now_ms: int) -> str:
    """Return a name that no other batch has; names are in the order of time."""
    return f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"


def read_cold(
    spark: SparkSession,
    tier: Tier,
    files: Sequence[str],
    columns: Sequence[str] = COLD.names,
    ids: Sequence[str] | None = None,
) -> DataFrame:
    """Return the rows of files of the tier, of some ids or of all, and no other column.

    Arrow reads them in tasks: Spark would look at each of a year's files on the driver first.
    """
    given = StructType([COLD[name] for name in columns])
    if not files or ids == []:
        return spark.createDataFrame([], given)
    cores = spark.sparkContext.defaultParallelism
    tasks = max(min(len(files), cores), len(files) // TASK_FILES)
    names = spark.createDataFrame([(file,) for file in files], "file string").repartition(tasks)
    return names.mapInArrow(partial(read_files, ColdRead(tier.log.root, given, ids)), given)


_MARKS = (
    "shard int, name string, id string, batch string, left_at long, due_at long, cancelled long"
)

BROADCAST_ROWS = 100_000  # so few go to every executor, and rows stay where they are


class Marks(msgspec.Struct, frozen=True):
    """The marks of a route. `began` has a generation of each shard, from before they were read."""

    began: Sequence[int]
    found: Sequence[tuple[int, Mark]]

    @property
    def ids(self) -> list[str]:
        """Return the ids that they are about."""
        return [mark.id for _, mark in self.found]

    def due_before(self, until_ms: int) -> "Marks":
        """Return the reschedules to an instant before this one."""
        found = [(n, mark) for n, mark in self.found if 0 < mark.due_at_ms < until_ms]
        return Marks(self.began, found)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return them as rows; a void copy has its batch, a tombstone has none."""
        rows = spark.createDataFrame([(shard, *mark) for shard, mark in self.found], _MARKS)
        return F.broadcast(rows) if len(self.found) <= BROADCAST_ROWS else rows


def new_generations(tier: Tier) -> list[int]:
    """Return a generation of each shard: a mark that is left later has this one at least."""
    with tier.opened() as shards:
        return [shard.new_generation() for shard in shards]


def read_marks(tier: Tier, began: Sequence[int]) -> Marks:
    """Return all that there are now."""
    with tier.opened() as shards:
        found = [(number, mark) for number, shard in enumerate(shards) for mark in shard.marks()]
    return Marks(began, found)


def drop_marks(tier: Tier, marks: Marks, used: Sequence[tuple[int, str]]) -> int:
    """Drop marks by shard and name, but for those that were left meanwhile; returns how many."""
    lifted = 0
    with tier.place.opened() as connection:
        for number, of_shard in groupby(sorted(used), key=lambda each: each[0]):
            store = DelayStore(
                connection, tier.shards[number], repeat_for_s=tier.place.repeat_for_s
            )
            names = [name for _, name in of_shard]
            for some in in_calls(names):
                lifted += store.lift(marks.began[number], some)
    return lifted
