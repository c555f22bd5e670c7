"""A route's cold tier: its settings, its files and the marks in the store that bind its rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from uuid import uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import StructType

from duebridge.config.load import load_config
from duebridge.config.models import ColdTier, Route
from duebridge.errors import ConfigError
from duebridge.store.batching import in_calls
from duebridge.store.cold.lease import ColdLease
from duebridge.store.cold.notes import ColdNotes, Mark
from duebridge.store.keys import Shard
from duebridge_connectors.spark.cold.commit_log import ColdLog, boundary_ms
from duebridge_connectors.spark.cold.log_owner import check_owner, claim_log
from duebridge_connectors.spark.cold.parquet.files import SHARES, ColdRead, read_files
from duebridge_connectors.spark.files.location import place_of_tier
from duebridge_connectors.spark.rows.schema import COLD
from duebridge_connectors.spark.source.options import StoreOptions
from duebridge_connectors.spark.source.planning import StoreAddress, open_route, store_address
from duebridge_connectors.spark.transforms.cold_copies import COPY, exclude

TASK_FILES = 256  # read by one task, one after another


class Tier(msgspec.Struct, frozen=True):
    """The cold tier of a route: its files, and the store that the rows come from."""

    address: StoreAddress
    route: Route
    settings: ColdTier
    shards: tuple[Shard, ...]
    log: ColdLog

    @contextmanager
    def notes(self) -> Iterator[list[ColdNotes]]:
        """Open the notes of each shard about the tier; raises `StoreError`."""
        with self.address.connect() as connection:
            yield [ColdNotes(connection, shard) for shard in self.shards]

    @contextmanager
    def leased(self, job: str, wait_ms: int = 0) -> Iterator[ColdLease]:
        """Have the lease of the tier; raises `JobFailed` that names who has it, and `StoreError`.

        A lease that is renewed is waited for as long as `wait_ms`.
        """
        with self.address.connect() as connection:
            stores = [self.address.delay_store(connection, shard) for shard in self.shards]
            with ColdLease.held(stores, job, wait_ms) as lease:
                yield lease

    def now_ms(self) -> int:
        """Return the store's time; raises `StoreError`."""
        with self.address.connect() as connection:
            return self.address.delay_store(connection, self.shards[0]).next().now_ms

    def boundary_ms(self) -> int:
        """Return the end of the horizon: envelopes due before it belong in the store."""
        return boundary_ms(self.now_ms(), self.settings.horizon)

    def cold_from_ms(self) -> int:
        """Return the instant from which on envelopes may go cold.

        After a horizon that was longer, it is the end of that, until a hydrate has noted this one.
        """
        return max(self.boundary_ms(), self.kept_until())

    def kept_until(self) -> int:
        """Return the end of what a hydrate counts as in the store: nothing before it goes cold."""
        with self.notes() as shards:
            return max(shard.kept_until() for shard in shards)


def open_tier(config: str, route: str, *, only_reads: bool = False) -> Tier:
    """Open the cold tier of a route, whose log is of this namespace from now on.

    One that `only_reads` leaves a log without an owner as it is. Raises `ConfigError` if the route
    has no cold tier, or another namespace its log; `StoreError`, `OSError` and `JobFailed`.
    """
    loaded = load_config(config)
    address = store_address(StoreOptions(config=config), loaded)
    found, shards = open_route(address, loaded, route)
    if found.cold_tier is None:
        raise ConfigError(f"routes.{route}.cold_tier: expected a path and a horizon; got none")
    log = ColdLog(place_of_tier(found.cold_tier, route), route)
    owned = check_owner if only_reads else claim_log
    owned(log, address.namespace)
    return Tier(address, found, found.cold_tier, address.shards(route, shards), log)


def new_batch(now_ms: int) -> str:
    """Return a unique name for a batch; names sort by time."""
    return f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"


def read_cold(
    spark: SparkSession,
    tier: Tier,
    files: Sequence[str],
    columns: Sequence[str] = COLD.names,
    ids: Sequence[str] | None = None,
) -> DataFrame:
    """Return columns of the rows in these files of the tier, of all ids or of some.

    `shard` is that of the route's present life, whatever life wrote the file.

    Arrow reads the files in tasks: Spark would list a year's files on the driver first. Where there
    are fewer files than cores, several tasks share the row groups of each.
    """
    schema = StructType([COLD[name] for name in columns])
    if not files or ids == []:
        return spark.createDataFrame([], schema)
    cores = spark.sparkContext.defaultParallelism
    shares = max(1, cores // len(files))
    parts = [(file, share) for file in files for share in range(shares)]
    tasks = max(min(len(parts), cores), len(parts) // TASK_FILES)
    turns = [(*part, place % tasks) for place, part in enumerate(parts)]
    names = spark.createDataFrame(turns, SHARES).repartitionById(tasks, "task")
    read = ColdRead(tier.log.root, schema, ids, shares, len(tier.shards))
    return names.mapInArrow(partial(read_files, read), schema)


def read_still_cold(
    spark: SparkSession, tier: Tier, columns: Sequence[str], ids: Sequence[str] | None = None
) -> DataFrame:
    """Return columns (`COPY` at least) of the rows of the tier that did not return singly."""
    state = tier.log.state()
    rows = read_cold(spark, tier, state.known, columns, ids)
    if not state.pulled:
        return rows
    return exclude(rows, read_cold(spark, tier, state.pulled, COPY, ids), COPY)


_MARKS = (
    "shard int, name string, id string, batch string, left_at long, due_at long, cancelled long,"
    " ended long"
)

BROADCAST_ROWS = 100_000  # up to this many are broadcast, which saves a shuffle


class ColdMarks(msgspec.Struct, frozen=True):
    """The tombstones and void copies of a route, by shard number.

    `began` holds a generation of each shard, taken before the marks were read.
    """

    began: Sequence[int]
    found: Sequence[tuple[int, Mark]]

    @property
    def ids(self) -> list[str]:
        """The ids of the marked envelopes."""
        return [mark.id for _, mark in self.found]

    @property
    def cancelled_ids(self) -> list[str]:
        """The ids whose rows up to a generation were cancelled."""
        return [mark.id for _, mark in self.found if mark.cancelled > 0]

    def of(self, number: int) -> list[Mark]:
        """Return the marks of a shard."""
        return [mark for shard, mark in self.found if shard == number]

    def due_before(self, until_ms: int) -> "ColdMarks":
        """Return the marks that reschedule an envelope to an instant before this one."""
        found = [(n, mark) for n, mark in self.found if 0 < mark.due_at_ms < until_ms]
        return ColdMarks(self.began, found)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the marks as rows; a void copy names its batch, a tombstone has an empty one."""
        rows = spark.createDataFrame([(shard, *mark) for shard, mark in self.found], _MARKS)
        return F.broadcast(rows) if len(self.found) <= BROADCAST_ROWS else rows


def new_generations(tier: Tier) -> list[int]:
    """Take a generation of each shard: every later mark has a generation at least as high."""
    with tier.notes() as shards:
        return [shard.new_generation() for shard in shards]


def read_marks(tier: Tier, began: Sequence[int] = ()) -> ColdMarks:
    """Return all marks that the store has now."""
    with tier.notes() as shards:
        found = [(number, mark) for number, shard in enumerate(shards) for mark in shard.marks()]
    return ColdMarks(began, found)


def drop_marks(tier: Tier, marks: ColdMarks, used: Sequence[tuple[int, str]], lease: str) -> None:
    """Drop marks by shard and name unless they were renewed meanwhile, or the lease is lost."""
    with tier.address.connect() as connection:
        for number, marked in groupby(sorted(used), key=itemgetter(0)):
            store = tier.address.delay_store(connection, tier.shards[number])
            for names in in_calls([name for _, name in marked]):
                store.lift(marks.began[number], names, lease)
