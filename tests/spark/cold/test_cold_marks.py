"""What tasks of the cold tier tell the store: the ids that are cold, and whose lease they have."""

import pyarrow as pa
import pytest

from duebridge.errors import StoreError
from duebridge.store.routing import shard_number
from duebridge_connectors.spark.cold.filter_rebuild import MarkJob, mark_rows
from duebridge_connectors.spark.cold.tier import Tier, open_tier
from tests.spark.by_hand import shipped, write_by_hand
from tests.spark.world import LATER_MS, World

NAMES = [f"i{number}" for number in range(600)]


@pytest.fixture
def tier(world: World) -> Tier:
    return open_tier(world.config, "cold")


def keys(names: list[str]) -> pa.RecordBatch:
    """Rows of shard, id and generation."""
    shards = [shard_number(name, 2) for name in names]
    generations = [9] * len(names)
    return pa.RecordBatch.from_pydict({"shard": shards, "id": names, "generation": generations})


def begin(tier: Tier, lease: str) -> None:
    with tier.notes() as shards:
        for shard in shards:
            shard.note_first(1)
            shard.store.begin_sift(3_000, 7, lease)


def test_mark_of_rows_reaches_the_filter_of_each_shard(world: World, tier: Tier) -> None:
    with tier.leased("test") as lease:
        begin(tier, lease.token)
        job = shipped(MarkJob(tier.address, tier.shards, lease.token, is_next=True))
        marked = list(mark_rows(job, iter([keys(NAMES[:300]), keys(NAMES[300:])])))
        with tier.notes() as shards:
            counts = [shard.store.end_sift(7, lease.token) for shard in shards]
            assert sum(counts) == sum(shard.filter().marked for shard in shards) == 600
    assert not any(batch.num_rows for batch in marked), "none of them lives in the store"
    producer = world.producer()
    assert {producer.cancel("cold", name) for name in NAMES[::20]} == {"recorded"}
    assert producer.cancel("cold", "another") == "unknown"


def test_task_of_a_run_that_lost_the_lease_is_refused(world: World, tier: Tier) -> None:
    with tier.leased("test") as lease:
        begin(tier, lease.token)
        late = lease.token
        lease.turn()
        job = MarkJob(tier.address, tier.shards, late, is_next=True)
        with pytest.raises(StoreError, match="HELD expected the lease of the cold tier; test on"):
            list(mark_rows(job, iter([keys(NAMES)])))
        row = {"id": "a", "body": "b", "due_at": LATER_MS}
        with pytest.raises(StoreError, match="HELD"):
            write_by_hand(world, [row], "cold", cold_lease=late)
        assert write_by_hand(world, [row], "cold", cold_lease=lease.token).accepted == 1
