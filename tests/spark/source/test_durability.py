"""Spark's tasks wait for replicas as any producer does: a task that is not confirmed fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from duebridge.errors import Indeterminate
from duebridge_connectors.spark.source.options import StoreOptions
from duebridge_connectors.spark.source.planning import given_store
from tests.spark.by_hand import shipped, write_by_hand
from tests.spark.world import LATER_MS, World
from tests.support.redis.replicas import Replicas, replicated

ROWS = [{"id": name, "body": "x", "due_at": LATER_MS} for name in ("a", "b")]


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with replicated(tmp_path, "--appendonly", "yes") as running:
        yield running


@pytest.fixture
def world(tmp_path: Path, replicas: Replicas) -> Iterator[World]:
    made = World(tmp_path, replicas.url, pytest.fail)
    file = Path(made.config)
    text = file.read_text()
    durability = "defaults: {durability: {replicated: {replicas: 2, timeout: 100ms}}}\n"
    file.write_text(text.replace("routes:\n", f"{durability}routes:\n"))
    yield made
    made.delete()


def test_write_that_replicas_did_not_confirm_fails_and_is_done_by_the_next_attempt(
    replicas: Replicas, world: World
) -> None:
    with replicas.frozen(), pytest.raises(Indeterminate) as refused:
        write_by_hand(world, ROWS, store_deadline="300ms")
    assert refused.value.ids == ("a",)
    summary = write_by_hand(world, ROWS)
    assert (summary.duplicate, summary.accepted) == (1, 1)


def test_shards_of_the_cold_tiers_jobs_wait_as_their_route_does(
    replicas: Replicas, world: World
) -> None:
    write_by_hand(world, ROWS[:1], "frozen")
    address = shipped(given_store(StoreOptions(config=world.config, store_deadline=300)))
    with address.connect() as connection:
        (shard,) = address.shards("frozen", 1)
        store = address.delay_store(connection, shard, 10**9)
        with replicas.frozen(1), pytest.raises(Indeterminate) as refused:
            store.demote("batch", 0, [("a", 1)])
    assert refused.value.ids == ("a",)
