"""Jobs of a cold tier beside each other, and beside cancels: nothing comes back past a cancel."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from duebridge.envelope import Envelope
from duebridge.errors import JobFailed, StoreError
from duebridge.store.cold.lease import ColdLease
from duebridge.store.routing import shard_number
from duebridge_connectors.spark.cold import batches, compaction, filter_rebuild
from duebridge_connectors.spark.cold.commit_log import HYDRATED, SCHEDULED, ColdLog, Commit
from duebridge_connectors.spark.cold.filter_rebuild import MarkJob, mark_rows
from duebridge_connectors.spark.cold.removal import finish_batches
from duebridge_connectors.spark.cold.sweep import LEFT_MS
from duebridge_connectors.spark.cold.tier import Tier, open_tier
from duebridge_connectors.spark.filesystem import open_filesystem
from duebridge_connectors.spark.jobs import hydrate
from duebridge_connectors.spark.jobs.demote import copy_far_rows
from duebridge_connectors.spark.jobs.schedule import run_schedule
from tests.spark.by_hand import shipped, write_by_hand
from tests.spark.cold_route import ColdRoute, without_patience
from tests.spark.world import LATER_MS, World

NAMES = [f"i{number}" for number in range(600)]


def test_hydrate_while_a_producer_cancels_and_reschedules_obeys_both_or_leaves_it_to_them(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.demoted("cancelled", "moved", "kept")
    cold.reach()
    real = hydrate.write_envelopes

    def racing(rows: Any, **options: Any) -> Any:
        assert cold.world.producer().cancel("cold", "cancelled") == "recorded"
        assert cold.world.producer().reschedule("cold", "moved", at=LATER_MS + 5) == "recorded"
        return real(rows, **options)

    monkeypatch.setattr(hydrate, "write_envelopes", racing)
    done = cold.hydrate()
    assert (done.accepted, done.cancelled) == (2, 1)
    assert cold.world.due("cold", "moved") == LATER_MS + 5
    assert cold.world.producer().cancel("cold", "kept") == "cancelled"
    assert {"tcancelled", "tmoved"} <= cold.marks(), "left meanwhile: they may bind what comes"


def test_schedule_of_a_cold_id_ends_its_copy_and_a_cancel_then_ends_all(cold: ColdRoute) -> None:
    """With the content of the copy, or with another one."""
    cold.demoted("a", "b", "kept")
    producer = cold.world.producer()
    for name, body in (("a", b"body of a"), ("b", b"other")):
        again = Envelope.new(body, id=name, at=LATER_MS)
        assert producer.schedule_many("cold", [again])[0].status == "accepted"
        assert producer.cancel("cold", name) == "cancelled"
    cold.reach()
    done = cold.hydrate(remember="1s")
    assert (done.accepted, done.duplicate, done.cancelled, done.left) == (1, 2, 0, 0)
    assert (cold.warm(), cold.ids(), cold.marks()) == ({"kept"}, [], set())


def test_hydrate_that_was_stopped_brings_back_nothing_that_another_did_away_with(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X was moved while it was copied. B has read the files, and not the marks, when A comes."""
    cold.schedule("x")
    cold.demote_until("before removal")
    assert cold.world.producer().reschedule("cold", "x", delay="6d") == "rescheduled"
    cold.demote()
    cold.reach()
    real, runs = hydrate.read_marks, []

    def stopped(tier: Any, began: Any) -> Any:
        runs.append(began)
        if len(runs) == 1:
            run_out(cold)
            assert (cold.hydrate(remember="1s").accepted, cold.marks()) == (0, set())
            assert cold.world.producer().cancel("cold", "x") == "cancelled"
        return real(tier, began)

    monkeypatch.setattr(hydrate, "read_marks", stopped)
    with pytest.raises(
        (PySparkException, JobFailed), match="HELD expected the lease of the cold tier"
    ):
        cold.hydrate(remember="1s")
    assert cold.warm() == set()


def run_out(cold: ColdRoute) -> None:
    """Let the lease of the tier run out, as after a pause of its holder."""
    for number in (0, 1):
        store = cold.world.store("cold", number)
        token = cold.world.connection.client.hget(store.shard.key("meta"), "cold_lease").split()[0]
        assert store.vacate(token.decode())


def test_hydrate_while_another_runs_is_refused_and_says_who_does(cold: ColdRoute) -> None:
    cold.demoted("a")
    stores = [cold.world.store("cold", number) for number in (0, 1)]
    with ColdLease.held(stores, "hydrate"), without_patience():
        with pytest.raises(JobFailed, match=r"tier is in use: hydrate on .* has it since"):
            cold.hydrate()
        assert cold.warm() == set()
        cold.schedule("b")
        assert cold.demote().removed == 1, "it needs the lease only to rebuild the filter"
    cold.reach()
    assert cold.hydrate().accepted == 2


def test_cancel_of_a_cold_row_binds_it_a_year_late(cold: ColdRoute) -> None:
    cold.demoted("a", "b")
    assert cold.world.producer().cancel("cold", "a") == "recorded"
    for number in (0, 1):
        key = cold.world.store("cold", number).shard.key("forget")
        for name in cold.world.connection.client.zrange(key, 0, -1):
            cold.world.connection.client.zadd(key, {name: 1})
        cold.world.store("cold", number).forget()
    assert "ta" in cold.marks()
    cold.reach()
    assert (cold.hydrate().accepted, cold.warm()) == (1, {"b"})


def test_demote_builds_the_filter_and_ids_that_no_file_has_leave_no_tombstone(
    cold: ColdRoute,
) -> None:
    cold.demoted("a", "b")
    producer = cold.world.producer()
    assert producer.cancel("cold", "nobody") == "unknown"
    assert (producer.cancel("cold", "a"), cold.marks()) == ("recorded", {"ta"})
    with cold.tier.leased("test") as lease:
        filter_rebuild.sift(cold.spark, cold.tier, lease)
    assert cold.marks() == {"ta"}
    cold.reach()
    assert (cold.hydrate().accepted, cold.marks()) == (1, set())
    with cold.tier.leased("test") as lease:
        filter_rebuild.sift(cold.spark, cold.tier, lease)
    assert producer.reschedule("cold", "a", delay="1h") == "unknown", "no file has it any more"


def test_filter_that_is_rebuilt_beside_a_demote_has_its_rows(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.demoted("a")
    count, tier = filter_rebuild._counts, cold.tier

    def count_before_a_demote(rows: DataFrame) -> Any:
        monkeypatch.setattr(filter_rebuild, "_counts", count)
        found = count(rows)
        cold.schedule("late")
        copied = copy_far_rows(cold.spark, tier, cold.world.config)
        assert copied is not None
        tier.log.commit(copied)
        assert [each.removed for each in finish_batches(cold.spark, tier)] == [1]
        return found

    monkeypatch.setattr(filter_rebuild, "_counts", count_before_a_demote)
    with tier.leased("test") as lease:
        filter_rebuild.sift(cold.spark, tier, lease)
    assert cold.world.producer().cancel("cold", "late") == "recorded"
    cold.reach()
    assert (cold.hydrate().cancelled, cold.warm()) == (1, {"a"})


def schedule_one(cold: ColdRoute) -> None:
    """Schedule a far row from a table."""
    rows = cold.spark.createDataFrame([("x", "x", LATER_MS)], "id string, body string, due_at long")
    rows.createOrReplaceTempView("one")
    run_schedule(cold.spark, ["one"], form="table", **cold.to)


def test_schedule_that_stood_still_at_its_commit_while_the_filter_was_rebuilt_fails(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = ColdLog._append

    def append_late(log: ColdLog, *given: Any) -> bool:
        if given[1].kind == SCHEDULED:
            monkeypatch.setattr(ColdLog, "_append", append)
            run_out(cold)
            with cold.tier.leased("another") as lease:
                filter_rebuild.sift(cold.spark, cold.tier, lease)
        return append(log, *given)

    monkeypatch.setattr(ColdLog, "_append", append_late)
    with pytest.raises(JobFailed, match="lease"):
        schedule_one(cold)
    assert cold.tier.log.state().files == []


def test_schedule_that_stood_still_until_its_files_may_be_swept_fails(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep that lost its lease may be about to delete them."""
    now_ms, mark = Tier.now_ms, batches.mark_batch

    def mark_late(*given: Any) -> Any:
        monkeypatch.setattr(Tier, "now_ms", lambda tier: now_ms(tier) + LEFT_MS)
        return mark(*given)

    monkeypatch.setattr(batches, "mark_batch", mark_late)
    with pytest.raises(JobFailed, match="stood still"):
        schedule_one(cold)
    assert cold.tier.log.state().files == []


def test_hydrate_that_commits_after_a_merge_of_its_files_keeps_their_marks(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.schedule("changed", "b")
    cold.demote_until("before removal")
    assert cold.world.producer().cancel("cold", "changed") == "cancelled"
    assert cold.demote().void == 1
    commit = ColdLog.commit

    def commit_after_a_merge(log: ColdLog, entry: Commit, *check: Any) -> bool:
        if entry.kind == HYDRATED:
            monkeypatch.setattr(ColdLog, "commit", commit)
            tier = compaction._Tier(log, entry.at_ms, lambda: None, *open_filesystem(log.root))
            assert compaction._merge_files(tier, log.state().files)
        return commit(log, entry, *check)

    monkeypatch.setattr(ColdLog, "commit", commit_after_a_merge)
    cold.reach()
    assert (cold.hydrate().accepted, cold.warm()) == (1, {"b"})
    assert {name[0] for name in cold.marks()} == {"x"}, "the merged file has the void copy"
    assert (cold.hydrate().duplicate, cold.warm(), cold.marks()) == (1, {"b"}, set())


def test_demote_whose_batch_comes_behind_the_back_of_a_hydrate_leaves_what_that_counts_as_back(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hydrate has read the log; the next one may come too late."""
    cold.schedule("a", "b")
    tier, real = cold.tier, hydrate.read_marks
    copied = copy_far_rows(cold.spark, tier, cold.world.config)

    def read_after_a_demote(*given: Any) -> Any:
        monkeypatch.setattr(hydrate, "read_marks", real)
        assert copied is not None
        tier.log.commit(copied)
        assert [(each.removed, each.void) for each in finish_batches(cold.spark, tier)] == [(1, 1)]
        return real(*given)

    monkeypatch.setattr(hydrate, "read_marks", read_after_a_demote)
    cold.reach(hours=1)
    assert (cold.hydrate().accepted, cold.warm()) == (0, {"a"})
    cold.reach(hours=2)
    assert (cold.hydrate().accepted, cold.warm(), cold.marks()) == (1, {"a", "b"}, set())


def test_demote_after_a_shorter_horizon_copies_nothing_until_a_hydrate_has_noted_it(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.schedule("a", "b")
    with monkeypatch.context() as longer:
        longer.setattr(cold, "_patch", longer)
        cold.reach()
        cold.hydrate()
    assert (cold.demote().batches, cold.warm()) == (0, {"a", "b"})
    cold.hydrate()
    assert (cold.demote().removed, cold.warm()) == (2, set())


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
