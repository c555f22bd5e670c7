"""Demote: what is due far ahead leaves the store for files, however often it is killed."""

from typing import Any

import pytest

from duebridge.errors import ConfigError, JobFailed
from duebridge_connectors.spark.cold.commit_log import ColdLog, Commit
from duebridge_connectors.spark.jobs import demote
from duebridge_connectors.spark.jobs.demote import run_demote
from tests.spark.cold_route import ColdRoute
from tests.spark.world import World


def test_demote_moves_what_is_due_beyond_the_horizon_as_it_is_and_nothing_else(
    cold: ColdRoute, world: World
) -> None:
    cold.schedule("a", "b", "c", key=b"k", expires="300d", remember="2h")
    world.schedule("cold", "near", delay="6d")
    number = next(n for n in (0, 1) if "a" in world.ids("cold", number=n))
    entry = world.store("cold", number).get("a")
    assert entry is not None
    record = entry.record
    assert record is not None
    done = cold.demote()
    assert (done.removed, done.void, done.batches) == (3, 0, 1)
    assert (cold.warm(), cold.ids()) == ({"near"}, ["a", "b", "c"])
    assert len(cold.tier.log.state().files) == 3, "a file for each hour"
    (row,) = cold.rows().where("id = 'a'").collect()
    assert (row.shard, row.generation, row.remember_ms) == (number, record.generation, 7_200_000)
    assert (bytes(row.blob), bytes(row.content_hash)) == (record.blob, record.content_hash)
    assert (row.due_at_ms, row.expires_at_ms) == (record.due_at_ms, record.expires_at_ms)
    assert row.scheduled_at_ms == record.scheduled_at_ms


def test_demote_of_a_route_without_a_cold_tier_is_refused(cold: ColdRoute, world: World) -> None:
    expected = r"routes\.plain.cold_tier: expected a path and a horizon"
    with pytest.raises(ConfigError, match=expected):
        run_demote(cold.spark, config=world.config, route="plain")


@pytest.mark.parametrize("step", ["before the commit", "before the end"])
def test_demote_killed_at_a_step_and_run_again_loses_nothing(cold: ColdRoute, step: str) -> None:
    ids = [f"i{n}" for n in range(20)]
    cold.schedule(*ids)
    cold.demote_until(step)
    assert cold.warm() == (set() if step == "before the end" else {*ids})
    done = cold.demote()
    assert (done.removed, done.void) == (20, 0)
    assert (cold.warm(), cold.ids()) == (set(), sorted(ids))


def test_demote_killed_in_the_middle_of_removal_goes_on_with_the_next_row(
    cold: ColdRoute, world: World
) -> None:
    ids = [f"i{n:03d}" for n in range(300)]
    cold.schedule(*ids)
    cold.demote_until("before removal")
    assert cold.warm() == {*ids}
    (batch,) = cold.tier.log.state().unfinished
    rows = cold.rows(batch.files).where("shard = 0").collect()
    first = sorted((row.id, row.generation) for row in rows)[:100]
    assert world.store("cold", 0, cold_tier_ms=1 << 40).demote(batch.batch, 0, first).removed == 100
    cold.schedule(first[0][0])  # a new life of what has gone
    assert cold.demote().removed == 301
    assert (cold.warm(), cold.ids()) == (set(), sorted([*ids, first[0][0]]))


def test_demote_of_what_changes_meanwhile_leaves_it_and_its_void_copy_never_comes_back(
    cold: ColdRoute, world: World, reach: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.schedule("kept", "cancelled", "moved")
    real = demote.copy_far_rows

    def copied(*given: Any) -> Any:
        commit = real(*given)
        assert world.producer().cancel("cold", "cancelled") == "cancelled"
        assert world.producer().reschedule("cold", "moved", delay="200d") == "rescheduled"
        return commit

    monkeypatch.setattr(demote, "copy_far_rows", copied)
    done = cold.demote()
    assert (done.removed, done.void, cold.warm()) == (1, 2, {"moved"})
    reach()
    back = cold.hydrate()
    assert (back.accepted, back.cancelled, cold.warm()) == (1, 0, {"kept", "moved"})
    assert cold.marks() == set()


def test_demote_whose_files_the_driver_does_not_see_moves_nothing(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.schedule("a", "b")
    real = ColdLog.written
    monkeypatch.setattr(ColdLog, "written", lambda log, folder: real(log, folder)[1:])
    with pytest.raises(JobFailed, match="nothing is moved"):
        cold.demote()
    assert (cold.warm(), cold.tier.log.commits()) == ({"a", "b"}, [])


def test_batch_that_the_store_has_forgotten_is_left_to_a_person(cold: ColdRoute) -> None:
    cold.tier.log.commit(Commit(kind="demoted", batch="B", at_ms=1, rows=1))
    with pytest.raises(JobFailed, match="expected to be finished within max_delay"):
        cold.demote()
