"""A route's cold tier as jobs have it: opened, read, written and verified.

rows ─▶ Parquet of a batch, read back by each task ─▶ commit               write_batch
committed rows ─▶ shard by shard, in order ─▶ demote.lua ─▶ commit         finish_batches
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from duebridge.config.load import load_config
from duebridge.config.models import ColdTier, Route
from duebridge.durations import format_ms
from duebridge.errors import ConfigError, JobFailed
from duebridge.store.cold import ColdNotes
from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge_connectors.spark.cold_files import WRITTEN, Batch, Wanted, read_files, write_hours
from duebridge_connectors.spark.cold_log import REMOVED, ColdLog, Commit, boundary_ms
from duebridge_connectors.spark.options import Where
from duebridge_connectors.spark.place import Place, open_route, place_of
from duebridge_connectors.spark.removal import Removal, remove_rows
from duebridge_connectors.spark.schema import COLD
from duebridge_connectors.spark.transforms.cold import KEYS, in_order

TASK_FILES = 256  # that one task reads, one after another


class Tier(msgspec.Struct, frozen=True):
    """Where cold rows of a route are, and the store that they came from."""

    place: Place
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
    where = Where(config=config)
    loaded = load_config(config)
    place = place_of(where, loaded)
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
    return names.mapInArrow(partial(read_files, Wanted(tier.log.root, given, ids)), given)


def write_batch(tier: Tier, rows: DataFrame, kind: str, batch: str) -> Commit:
    """Write rows (`cold_rows`) as a batch, and return the commit that would make them count.

    Each task reads back what it wrote. Raises `JobFailed` where that was something else, or where
    the driver does not see what tasks have written.
    """
    write = partial(write_hours, Batch(tier.log.root, batch))
    found = {row.file: row.rows for row in rows.mapInArrow(write, WRITTEN).collect()}
    unseen = len({*found} - {*tier.log.written(f"batch={batch}")}) if found else 0
    if unseen:
        expected = "expected a place that the driver and all executors share"
        raise JobFailed(
            f"{tier.log.root}: {expected}; {unseen} files are not seen: nothing is moved"
        )
    total = sum(found.values())
    return Commit(
        kind=kind, batch=batch, at_ms=tier.now_ms(), rows=total, files=tuple(sorted(found))
    )


def finish_batches(spark: SparkSession, tier: Tier) -> list[Commit]:
    """Remove from the store what committed batches have; returns what was done, a batch each.

    Any number of jobs may do this at once, and be killed: no row is removed or judged twice.
    """
    return [_finish(spark, tier, batch) for batch in tier.log.state().unfinished]


def _finish(spark: SparkSession, tier: Tier, batch: Commit) -> Commit:
    age_ms = tier.now_ms() - batch.at_ms
    if age_ms >= tier.route.max_delay:  # the store has forgotten what was done of it
        text = f"expected to be finished within max_delay; it was begun {format_ms(age_ms)} ago"
        raise JobFailed(f"batch {batch.batch} of {tier.log.root}: {text}")
    job = Removal(tier.place, tier.shards, batch.batch, tier.route.max_delay)
    keys = in_order(read_cold(spark, tier, batch.files, KEYS))
    counts = keys.mapInArrow(partial(remove_rows, job), "done long, removed long, void long")
    total = counts.groupBy().sum().collect()[0]
    done, removed, void = (int(each or 0) for each in total)
    if done != batch.rows:
        raise JobFailed(f"batch {batch.batch}: expected {batch.rows} rows to be done; got {done}")
    finished = Commit(
        kind=REMOVED,
        batch=batch.batch,
        at_ms=tier.now_ms(),
        rows=done,
        removed=removed,
        void=void,
    )
    tier.log.commit(finished)
    return finished
