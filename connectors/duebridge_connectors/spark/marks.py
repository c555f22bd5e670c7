"""What binds cold rows, read from all shards at once; dropped once its rows are in the store."""

from collections.abc import Sequence
from itertools import groupby

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.store.batching import in_calls
from duebridge.store.cold import Mark
from duebridge.store.delay_store import DelayStore
from duebridge_connectors.spark.cold_tier import Tier

_MARKS = (
    "shard int, name string, id string, batch string, left_at long, due_at long, cancelled long"
)

FEW = 100_000  # so few go to every executor, and rows stay where they are


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
        return F.broadcast(rows) if len(self.found) <= FEW else rows


def begin(tier: Tier) -> list[int]:
    """Return a generation of each shard: a mark that is left later has this one at least."""
    with tier.opened() as shards:
        return [shard.new_generation() for shard in shards]


def read_marks(tier: Tier, began: Sequence[int]) -> Marks:
    """Return all that there are now."""
    with tier.opened() as shards:
        found = [(number, mark) for number, shard in enumerate(shards) for mark in shard.marks()]
    return Marks(began, found)


def lift(tier: Tier, marks: Marks, used: Sequence[tuple[int, str]]) -> int:
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
