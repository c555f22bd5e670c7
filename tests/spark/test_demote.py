"""Demote: what is due far ahead leaves the store for files, however often it is killed."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from duebridge.envelope import Envelope
from duebridge.errors import ConfigError, JobFailed
from duebridge_connectors.spark.cold import batches
from duebridge_connectors.spark.cold.commit_log import REMOVED, ColdLog, Commit
from duebridge_connectors.spark.cold.tier import open_tier, read_cold
from duebridge_connectors.spark.jobs import demote
from duebridge_connectors.spark.jobs.demote import run_demote
from tests.spark.conftest import LATER_MS, World

HOUR_MS = 3_600_000


def schedule(world: World, *ids: str, **given: Any) -> None:
    """Put envelopes into the store, due in a month, an hour apart."""
    envelopes = [
        Envelope.new(f"body of {name}".encode(), id=name, at=LATER_MS + n * HOUR_MS, **given)
        for n, name in enumerate(ids)
    ]
    receipts = world.producer().schedule_many("cold", envelopes)
    assert {each.status for each in receipts} <= {"accepted"}


def warm(world: World) -> set[str]:
    """The ids in the store."""
    return world.ids("cold", number=0) | world.ids("cold", number=1)


def cold(spark: SparkSession, world: World, route: str = "cold") -> list[str]:
    """The ids of the rows that count, void ones among them."""
    tier = open_tier(world.config, route)
    rows = read_cold(spark, tier, tier.log.state().files).select("id").collect()
    return sorted(row.id for row in rows)


def log_of(world: World) -> ColdLog:
    return open_tier(world.config, "cold").log


def test_demote_moves_what_is_due_beyond_the_horizon_and_nothing_else(
    spark: SparkSession, world: World
) -> None:
    schedule(world, "a", "b", "c")
    world.producer().schedule("cold", b"x", id="near", delay="6d")
    done = run_demote(spark, config=world.config, route="cold")
    assert (done.removed, done.void, done.batches) == (3, 0, 1)
    assert warm(world) == {"near"}
    assert cold(spark, world) == ["a", "b", "c"]
    assert len(log_of(world).state().files) == 3, "a file for each hour"


def test_demote_keeps_what_a_row_is(spark: SparkSession, world: World) -> None:
    schedule(world, "a", key=b"k", expires="300d", remember="2h")
    number = next(n for n in (0, 1) if world.ids("cold", number=n))
    entry = world.store("cold", number).get("a")
    assert entry is not None
    run_demote(spark, config=world.config, route="cold")
    tier = open_tier(world.config, "cold")
    (row,) = read_cold(spark, tier, tier.log.state().files).collect()
    record = entry.record
    assert record is not None
    assert (row.id, row.shard, row.generation) == ("a", number, record.generation)
    assert (bytes(row.blob), bytes(row.content_hash)) == (record.blob, record.content_hash)
    assert row.remember_ms == 7_200_000
    assert (row.due_at_ms, row.expires_at_ms) == (record.due_at_ms, record.expires_at_ms)
    assert row.scheduled_at_ms == record.scheduled_at_ms


def test_demote_of_a_route_without_a_cold_tier_is_refused(
    spark: SparkSession, world: World
) -> None:
    with pytest.raises(
        ConfigError, match=r"routes\.plain.cold_tier: expected a path and a horizon"
    ):
        run_demote(spark, config=world.config, route="plain")


class Killed(Exception):
    """Stands for the end of the driver."""


def die(*_: Any, **__: Any) -> Any:
    raise Killed


def die_at_the_end(log: ColdLog, entry: Commit) -> None:
    if entry.kind == REMOVED:
        raise Killed
    _commit(log, entry)


_commit = ColdLog.commit
STEPS = {
    "before the commit": (ColdLog, "commit", die),
    "before removal": (batches, "_finish", die),
    "before the end": (ColdLog, "commit", die_at_the_end),
}


def demote_until(spark: SparkSession, world: World, step: str) -> None:
    """Run a demote whose driver is killed at a step."""
    with pytest.MonkeyPatch.context() as killing:
        killing.setattr(*STEPS[step])
        with pytest.raises(Killed):
            run_demote(spark, config=world.config, route="cold")


@pytest.mark.parametrize("step", STEPS)
def test_demote_killed_at_a_step_and_run_again_loses_nothing(
    spark: SparkSession, world: World, step: str
) -> None:
    ids = [f"i{n}" for n in range(20)]
    schedule(world, *ids)
    demote_until(spark, world, step)
    assert warm(world) == (set() if step == "before the end" else {*ids})
    done = run_demote(spark, config=world.config, route="cold")
    assert (done.removed, done.void) == (20, 0)
    assert warm(world) == set()
    assert cold(spark, world) == sorted(ids)


def test_demote_killed_in_the_middle_of_removal_goes_on_with_the_next_row(
    spark: SparkSession, world: World
) -> None:
    ids = [f"i{n:03d}" for n in range(300)]
    schedule(world, *ids)
    demote_until(spark, world, "before removal")
    tier = open_tier(world.config, "cold")
    (batch,) = tier.log.state().unfinished
    rows = read_cold(spark, tier, batch.files).where("shard = 0").collect()
    first = sorted((row.id, row.generation) for row in rows)[:100]
    assert world.store("cold", 0, cold_tier_ms=1 << 40).demote(batch.batch, 0, first).removed == 100
    schedule(world, first[0][0])  # a new life of what has gone
    assert run_demote(spark, config=world.config, route="cold").removed == 301
    assert warm(world) == set()
    assert cold(spark, world) == sorted([*ids, first[0][0]])


def test_demote_of_what_changes_meanwhile_leaves_it_and_voids_its_copy(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule(world, "kept", "cancelled", "moved")
    real = demote.copy_far_rows

    def copied(*given: Any) -> Any:
        commit = real(*given)
        assert world.producer().cancel("cold", "cancelled") == "cancelled"
        assert world.producer().reschedule("cold", "moved", delay="200d") == "rescheduled"
        return commit

    monkeypatch.setattr(demote, "copy_far_rows", copied)
    done = run_demote(spark, config=world.config, route="cold")
    assert (done.removed, done.void) == (1, 2)
    assert warm(world) == {"moved"}


def test_demote_whose_files_the_driver_does_not_see_moves_nothing(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule(world, "a", "b")
    real = ColdLog.written
    monkeypatch.setattr(ColdLog, "written", lambda log, folder: real(log, folder)[1:])
    with pytest.raises(JobFailed, match="nothing is moved"):
        run_demote(spark, config=world.config, route="cold")
    assert warm(world) == {"a", "b"}
    assert log_of(world).commits() == []


def test_batch_that_the_store_has_forgotten_is_left_to_a_person(
    spark: SparkSession, world: World
) -> None:
    tier = open_tier(world.config, "cold")
    tier.log.commit(Commit(kind="demoted", batch="B", at_ms=1, rows=1))
    with pytest.raises(JobFailed, match="expected to be finished within max_delay"):
        run_demote(spark, config=world.config, route="cold")
