"""Demote and hydrate: far envelopes leave for files and come back, each once, despite any kill."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.config.models import HOUR_MS
from duebridge.errors import ConfigError, JobFailed
from duebridge.store.server.connection import open_connection
from duebridge_connectors.spark.cold.commit_log import DEMOTED, SIFTED, ColdLog, Commit
from duebridge_connectors.spark.cold.sweep import LEFT_MS, sweep
from duebridge_connectors.spark.cold.tier import Tier
from duebridge_connectors.spark.jobs import demote, hydrate
from duebridge_connectors.spark.jobs.demote import run_demote
from duebridge_connectors.spark.rows.schema import COLD
from duebridge_connectors.spark.transforms.cold_copies import batch_rows
from tests.spark.cold_route import ColdRoute, Killed, die
from tests.spark.world import LATER_MS, World, setting
from tests.support.desk import YEAR_MS
from tests.support.network.proxy import proxied
from tests.support.servers import AT_ONCE, back_up, redis_server, restored


def test_demote_moves_what_is_due_beyond_the_horizon_as_it_is_and_nothing_else(
    cold: ColdRoute,
) -> None:
    cold.schedule("a", "b", "c", key=b"k", expires="300d", remember="2h")
    cold.world.schedule("cold", "near", delay="6d")
    number, record = cold.world.record("cold", "a")
    done = cold.demote()
    assert (done.removed, done.void, done.batches) == (3, 0, 1)
    assert (cold.warm(), cold.ids()) == ({"near"}, ["a", "b", "c"])
    assert len(cold.tier.log.state().files) <= 2, "a file a task, of any hours"
    (row,) = cold.rows().where("id = 'a'").collect()
    assert (row.shard, row.generation, row.remember_ms) == (number, record.generation, 7_200_000)
    assert (bytes(row.blob), bytes(row.content_hash)) == (record.blob, record.content_hash)
    assert (row.due_at_ms, row.expires_at_ms) == (record.due_at_ms, record.expires_at_ms)
    assert row.scheduled_at_ms == record.scheduled_at_ms


def test_demote_of_a_route_without_a_cold_tier_is_refused(cold: ColdRoute) -> None:
    expected = r"routes\.plain.cold_tier: expected a path and a horizon"
    with pytest.raises(ConfigError, match=expected):
        run_demote(cold.spark, config=cold.world.config, route="plain")


def test_batch_of_one_hour_is_shared_by_tasks_and_has_each_row_once(spark: SparkSession) -> None:
    due_ms = 500_000 * HOUR_MS
    given = {"id": F.format_string("n-%d", "id"), "due_at_ms": F.lit(due_ms), "blob": F.lit(b"b")}
    columns = (given.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in COLD.fields)
    rows = spark.range(1000).select(*columns)
    together = setting(spark, "spark.sql.adaptive.enabled", "false")
    with together, setting(spark, "spark.sql.shuffle.partitions", "16"):
        batch = batch_rows(rows.unionByName(rows), "B").select(F.spark_partition_id().alias("task"))
        found = [row.task for row in batch.collect()]
    assert len(found) == 1000
    assert len({*found}) > 1


@pytest.mark.parametrize("step", ["before the commit", "before the end"])
def test_demote_killed_at_a_step_and_run_again_loses_nothing(cold: ColdRoute, step: str) -> None:
    ids = [f"i{n}" for n in range(20)]
    cold.schedule(*ids)
    cold.demote_until(step)
    assert cold.warm() == (set() if step == "before the end" else {*ids})
    done = cold.demote()
    assert (done.removed, done.void) == (20, 0)
    assert (cold.warm(), cold.ids()) == (set(), sorted(ids))


def test_demote_killed_in_the_middle_of_removal_goes_on_with_the_next_row(cold: ColdRoute) -> None:
    ids = [f"i{n:03d}" for n in range(300)]
    cold.schedule(*ids)
    cold.demote_until("before removal")
    assert cold.warm() == {*ids}
    (batch,) = cold.tier.log.state().unfinished
    rows = cold.rows(batch.files).where("shard = 0").collect()
    first = sorted((row.id, row.generation) for row in rows)[:100]
    assert (
        cold.world.store("cold", 0, cold_tier_ms=1 << 40).demote(batch.batch, 0, first).removed
        == 100
    )
    cold.schedule(first[0][0])  # a new life of what has gone
    assert cold.demote().removed == 301
    assert (cold.warm(), cold.ids()) == (set(), sorted([*ids, first[0][0]]))


def test_demote_of_what_changes_meanwhile_leaves_it_and_its_void_copy_never_comes_back(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.schedule("kept", "cancelled", "moved")
    real = demote.copy_far_rows

    def copied(*given: Any) -> Any:
        commit = real(*given)
        assert cold.world.producer().cancel("cold", "cancelled") == "cancelled"
        assert cold.world.producer().reschedule("cold", "moved", delay="200d") == "rescheduled"
        return commit

    monkeypatch.setattr(demote, "copy_far_rows", copied)
    done = cold.demote()
    assert (done.removed, done.void, cold.warm()) == (1, 2, {"moved"})
    cold.reach()
    back = cold.hydrate()
    assert (back.accepted, back.cancelled, cold.warm()) == (1, 0, {"kept", "moved"})
    assert cold.marks() == set()


def test_demote_that_reads_an_envelope_before_and_after_it_was_moved_leaves_it(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.schedule("kept", "moved")
    real = demote.copied_slices

    def copied_twice(*given: Any) -> Any:
        before = real(*given).localCheckpoint()
        assert cold.world.producer().reschedule("cold", "moved", delay="200d") == "rescheduled"
        return before.unionByName(real(*given))

    monkeypatch.setattr(demote, "copied_slices", copied_twice)
    assert (cold.demote().removed, cold.warm()) == (1, {"moved"})
    cold.reach(hours=24 * 250)
    assert (cold.hydrate().accepted, cold.warm()) == (1, {"kept", "moved"})


def test_demote_whose_files_the_driver_does_not_see_moves_nothing(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.schedule("a", "b")
    real = ColdLog.written
    monkeypatch.setattr(ColdLog, "written", lambda log, folder: real(log, folder)[1:])
    with pytest.raises(JobFailed, match="nothing is moved"):
        cold.demote()
    assert (cold.warm(), cold.tier.log.commits()) == ({"a", "b"}, [])


@pytest.mark.parametrize("is_known", [False, True])
def test_batch_of_an_earlier_version_that_the_store_may_have_forgotten_is_left_to_a_person(
    cold: ColdRoute, is_known: bool
) -> None:
    cold.tier.log.commit(Commit(kind=DEMOTED, batch="B", at_ms=1, rows=1))
    for number in (0, 1):
        store = cold.world.store("cold", number, cold_tier_ms=YEAR_MS)
        if is_known:
            store.demote("B", 0, [("gone", 7)])
    with pytest.raises(JobFailed, match="1 rows to be done" if is_known else "within max_delay"):
        cold.demote()


def test_demote_killed_before_the_end_is_finished_however_late(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.schedule("a", "b", "c")
    cold.demote_until("before the end")
    for number in (0, 1):
        key = cold.world.store("cold", number).shard.key("forget")
        for name in cold.world.connection.client.zrange(key, 0, -1):
            cold.world.connection.client.zadd(key, {name: 1})
        cold.world.store("cold", number).forget()
    now_ms = Tier.now_ms
    monkeypatch.setattr(Tier, "now_ms", lambda tier: now_ms(tier) + 2 * YEAR_MS)
    cold.reach()
    assert (cold.hydrate().accepted, cold.warm()) == (3, {"a", "b", "c"})


@pytest.mark.parametrize("shards", [1, 3])
def test_route_made_again_with_other_shards_goes_on_with_its_cold_rows(
    cold: ColdRoute, shards: int
) -> None:
    ids = [f"i{n}" for n in range(12)]
    cold.demoted(*ids)
    cold.schedule("purged")
    cold.demote_until("before removal")
    cold.begin_anew(shards)
    done = cold.demote()
    assert (done.removed, done.void) == (0, 1)
    producer = cold.world.producer()
    assert {producer.cancel("cold", name) for name in ids[:4]} == {"recorded"}
    assert producer.cancel("cold", "another") == "unknown"
    cold.world.schedule("cold", *ids[4:6])
    assert {producer.cancel("cold", name) for name in ids[4:6]} == {"cancelled"}
    cold.reach()
    back = cold.hydrate()
    assert (back.accepted, back.cancelled, back.duplicate, back.left) == (6, 4, 2, 0)
    assert cold.warm() == {*ids[6:]}


@pytest.mark.parametrize("stands_still", ["half a day", "a day"])
def test_demote_that_stood_still_at_its_commit_fails_before_its_files_may_be_swept(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch, stands_still: str
) -> None:
    """An entry that named files that are gone would be in the way of every job."""
    cold.schedule("a", "b")
    append, now_ms = ColdLog._append, Tier.now_ms
    still_ms = LEFT_MS if stands_still == "a day" else LEFT_MS // 2

    def append_late(log: ColdLog, end: Any, commit: Commit) -> bool:
        if commit.kind == DEMOTED:
            monkeypatch.setattr(ColdLog, "_append", append)
            monkeypatch.setattr(Tier, "now_ms", lambda tier: now_ms(tier) + still_ms)
            sweep(log, cold.tier.now_ms())
            log.commit(Commit(kind=SIFTED, batch="", at_ms=1))  # as another job does
        return append(log, end, commit)

    monkeypatch.setattr(ColdLog, "_append", append_late)
    with pytest.raises(JobFailed, match="stood still"):
        cold.demote()
    assert (cold.warm(), cold.tier.log.state().unfinished) == ({"a", "b"}, [])
    assert cold.demote().removed == 2


MONTH_MS = 30 * 24 * HOUR_MS


def test_hydrate_brings_back_what_is_due_and_leaves_the_rest(cold: ColdRoute) -> None:
    cold.demoted("a", "b", "c", "d", "e")
    before = cold.hydrate()
    assert (before.accepted, str(before)) == (0, "route cold: nothing to bring back")
    cold.reach(hours=2)
    done = cold.hydrate()
    assert (done.accepted, done.left) == (len(cold.warm()), 0)
    assert {"a", "b"} <= cold.warm() <= {"a", "b", "c"}
    again = cold.hydrate()
    assert (again.accepted, again.duplicate) == (0, 0), "no file is read twice"
    assert sorted([*cold.warm(), *cold.ids()]) == ["a", "b", "c", "d", "e"]
    assert cold.world.due("cold", "a") == LATER_MS


def test_hydrate_of_an_empty_tier_notes_until_when_all_is_in_the_store(cold: ColdRoute) -> None:
    done = cold.hydrate()
    polls = [cold.world.store("cold", number).next() for number in (0, 1)]
    assert [poll.hydrated_until_ms for poll in polls] == [done.until_ms] * 2
    assert done.until_ms % HOUR_MS == 0


@pytest.mark.parametrize("step", ["before the commit", "while rows are written"])
def test_hydrate_killed_at_a_step_and_run_again_brings_nothing_twice(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    cold.demoted("a", "b", "c")
    cold.reach()
    with monkeypatch.context() as killing:
        if step == "before the commit":
            killing.setattr(ColdLog, "commit", die)
        else:
            killing.setattr(hydrate, "write_envelopes", half_of(hydrate.write_envelopes))
        with pytest.raises(Killed):
            cold.hydrate()
    came = cold.warm()
    assert came
    assert cold.world.producer().cancel("cold", min(came)) == "cancelled"
    done = cold.hydrate()
    counts = (done.accepted, done.duplicate, done.cancelled)
    assert counts == (3 - len(came), len(came) - 1, 1)
    assert (cold.warm(), cold.ids()) == ({"a", "b", "c"} - {min(came)}, [])


def half_of(write: Any) -> Any:
    def written(rows: Any, **options: Any) -> Any:
        write(rows.where("id < 'b'"), **options)
        raise Killed

    return written


def test_hydrate_obeys_cancels_and_reschedules_and_drops_what_is_used(cold: ColdRoute) -> None:
    cold.demoted("kept", "cancelled", "moved", "far")
    producer = cold.world.producer()
    assert producer.cancel("cold", "cancelled") == "recorded"
    assert producer.reschedule("cold", "moved", at=LATER_MS + 77) == "recorded"
    assert producer.reschedule("cold", "far", at=LATER_MS + 2 * MONTH_MS) == "recorded"
    assert cold.marks() == {"tcancelled", "tmoved", "tfar"}
    cold.reach()
    done = cold.hydrate()
    assert (done.accepted, done.cancelled, cold.warm()) == (3, 1, {"kept", "moved", "far"})
    assert cold.world.due("cold", "moved") == LATER_MS + 77
    assert cold.world.due("cold", "far") == LATER_MS + 2 * MONTH_MS
    assert cold.marks() == set()


def test_hydrate_brings_what_was_moved_forward_once_and_leaves_its_file(cold: ColdRoute) -> None:
    cold.demoted("a", "b")
    assert cold.world.producer().reschedule("cold", "b", delay="1h") == "recorded"
    done = cold.hydrate()
    assert (done.accepted, done.pulled, cold.warm()) == (1, 1, {"b"})
    assert cold.hydrate().pulled == 0, "the tombstone is used up"
    assert cold.world.producer().cancel("cold", "b") == "cancelled"
    cold.reach()
    done = cold.hydrate(remember="1s")
    assert (done.accepted, done.duplicate, cold.warm()) == (1, 0, {"a"})


def test_hydrate_finishes_a_demote_that_was_killed_first(cold: ColdRoute) -> None:
    cold.schedule("a", "b")
    cold.demote_until("before removal")
    assert (cold.hydrate().accepted, cold.warm()) == (0, set())
    cold.reach()
    assert (cold.hydrate().accepted, cold.warm()) == (2, {"a", "b"})
    assert cold.demote().batches == 0


def test_hydrate_leaves_what_a_killed_demote_would_remove_and_is_due_soon(cold: ColdRoute) -> None:
    cold.schedule("soon")
    cold.world.schedule("cold", "later", at=LATER_MS + 9 * HOUR_MS)
    cold.demote_until("before removal")
    cold.reach(hours=1)
    assert (cold.hydrate().accepted, cold.warm()) == (0, {"soon"})
    cold.reach()
    assert (cold.hydrate().accepted, cold.warm()) == (1, {"soon", "later"})


@pytest.mark.long
def test_demote_and_hydrate_while_replies_are_lost_lose_nothing(
    cold: ColdRoute, service: Any
) -> None:
    ids = [f"i{n:04d}" for n in range(40)]
    cold.schedule(*ids)
    with proxied(int(service("redis", "port"))) as proxy:
        cold.world.use(f"redis://127.0.0.1:{proxy.port}/0")
        proxy.lose_reply_to(ids[0].encode())  # of demote, the first call that names it
        assert cold.demote().removed == len(ids)
        assert (proxy.lost, cold.warm()) == (1, set())
        cold.reach(99)
        proxy.lose_reply_to(ids[0].encode())  # of schedule
        done = cold.hydrate()
        assert (proxy.lost, done.accepted + done.duplicate) == (2, len(ids))
    assert cold.warm() == {*ids}


@pytest.mark.long
def test_restore_of_a_store_and_the_commits_of_its_moment_loses_no_cold_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ids are cold and two in the store at the backup; then all change places."""
    lost, commits = tmp_path / "lost", tmp_path / "cold" / "route=cold" / "_commits"
    lost.mkdir()
    with redis_server(lost, "--appendonly", "yes", *AT_ONCE) as port:
        world = World(tmp_path, f"redis://127.0.0.1:{port}/0", lambda: spark)
        cold = ColdRoute(world, monkeypatch)
        cold.demoted("a", "b")
        cold.schedule("c", "d")
        back_up(port, tmp_path / "backup.rdb")
        shutil.copytree(commits, tmp_path / "backup")
        assert cold.demote().removed == 2
        cold.reach()
        assert cold.hydrate().accepted == 4
    shutil.rmtree(commits)
    shutil.copytree(tmp_path / "backup", commits)
    with restored(tmp_path / "backup.rdb", tmp_path / "restored") as port:
        cold.world.use(f"redis://127.0.0.1:{port}/0")
        cold.world.connection = open_connection(f"redis://127.0.0.1:{port}/0")
        assert cold.warm() == {"c", "d"}
        done = cold.hydrate()
        assert (done.accepted, done.left, cold.warm()) == (2, 0, {"a", "b", "c", "d"})
