"""Hydrate: cold rows come back before they are due, each once, and never after their cancel."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from duebridge.config.models import HOUR_MS
from duebridge.envelope import Envelope
from duebridge.store.connection import open_connection
from duebridge_connectors.spark.cold.commit_log import ColdLog, Commit
from duebridge_connectors.spark.cold.tier import Tier, open_tier
from duebridge_connectors.spark.jobs import hydrate
from duebridge_connectors.spark.jobs.demote import run_demote
from duebridge_connectors.spark.jobs.hydrate import HydrateSummary, run_hydrate
from tests.spark.conftest import LATER_MS, World
from tests.spark.test_demote import Killed, cold, demote_until, die, schedule, warm
from tests.support.backup import AT_ONCE, back_up, restored
from tests.support.proxy import proxied
from tests.support.servers import redis_server

MONTH_MS = 30 * 24 * HOUR_MS


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the horizon reach so far that what is due in a month is to come back."""

    def reach(hours: int = 24) -> None:
        monkeypatch.setattr(Tier, "boundary_ms", lambda _: LATER_MS + hours * HOUR_MS)

    return reach


def run(spark: SparkSession, world: World, **options: Any) -> HydrateSummary:
    return run_hydrate(spark, config=world.config, route="cold", **options)


def demoted(spark: SparkSession, world: World, *ids: str) -> None:
    """Schedule envelopes, an hour apart in a month, and move them to the cold tier."""
    schedule(world, *ids)
    assert run_demote(spark, config=world.config, route="cold").removed == len(ids)


def marks(world: World) -> set[str]:
    with open_tier(world.config, "cold").notes() as shards:
        return {mark.name for shard in shards for mark in shard.marks()}


def test_hydrate_brings_back_what_is_due_and_leaves_the_rest(
    spark: SparkSession, world: World, later: Any
) -> None:
    demoted(spark, world, "a", "b", "c", "d", "e")
    before = run(spark, world)
    assert (before.accepted, str(before)) == (0, "route cold: nothing to bring back")
    later(hours=2)
    done = run(spark, world)
    assert (done.accepted, done.left) == (len(warm(world)), 0)
    assert {"a", "b"} <= warm(world) <= {"a", "b", "c"}
    again = run(spark, world)
    assert (again.accepted, again.duplicate) == (0, 0), "no file is read twice"
    assert sorted([*warm(world), *cold(spark, world)]) == ["a", "b", "c", "d", "e"]
    known = world.producer().get("cold", "a")
    assert known is not None
    assert known.due_at_ms == LATER_MS


def test_hydrate_of_an_empty_tier_notes_until_when_all_is_in_the_store(
    spark: SparkSession, world: World
) -> None:
    done = run(spark, world)
    polls = [world.store("cold", number).next() for number in (0, 1)]
    assert [poll.hydrated_until_ms for poll in polls] == [done.until_ms] * 2
    assert done.until_ms % HOUR_MS == 0


@pytest.mark.parametrize("step", ["before the commit", "while rows are written"])
def test_hydrate_killed_at_a_step_and_run_again_brings_nothing_twice(
    spark: SparkSession, world: World, later: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    demoted(spark, world, "a", "b", "c")
    later()
    with monkeypatch.context() as killing:
        if step == "before the commit":
            killing.setattr(ColdLog, "commit", die)
        else:
            killing.setattr(hydrate, "write_envelopes", half_of(hydrate.write_envelopes))
        with pytest.raises(Killed):
            run(spark, world)
    came = warm(world)
    assert came
    assert world.producer().cancel("cold", min(came)) == "cancelled"
    done = run(spark, world)
    assert (done.accepted, done.duplicate) == (3 - len(came), len(came))
    assert warm(world) == {"a", "b", "c"} - {min(came)}
    assert cold(spark, world) == []


def half_of(write: Any) -> Any:
    def written(rows: Any, **options: Any) -> Any:
        write(rows.where("id < 'b'"), **options)
        raise Killed

    return written


def test_hydrate_obeys_cancels_and_reschedules_and_drops_what_is_used(
    spark: SparkSession, world: World, later: Any
) -> None:
    demoted(spark, world, "kept", "cancelled", "moved", "far")
    producer = world.producer()
    assert producer.cancel("cold", "cancelled") == "recorded"
    assert producer.reschedule("cold", "moved", at=LATER_MS + 77) == "recorded"
    assert producer.reschedule("cold", "far", at=LATER_MS + 2 * MONTH_MS) == "recorded"
    assert marks(world) == {"tcancelled", "tmoved", "tfar"}
    later()
    done = run(spark, world)
    assert (done.accepted, done.cancelled) == (3, 1)
    assert warm(world) == {"kept", "moved", "far"}
    dues = {name: known.due_at_ms for name in warm(world) if (known := producer.get("cold", name))}
    assert (dues["moved"], dues["far"]) == (LATER_MS + 77, LATER_MS + 2 * MONTH_MS)
    assert marks(world) == set()


def test_hydrate_brings_what_was_moved_forward_once_and_leaves_its_file(
    spark: SparkSession, world: World, later: Any
) -> None:
    demoted(spark, world, "a", "b")
    assert world.producer().reschedule("cold", "b", delay="1h") == "recorded"
    done = run(spark, world)
    assert (done.accepted, done.pulled) == (1, 1)
    assert warm(world) == {"b"}
    assert run(spark, world).pulled == 0, "the tombstone is used up"
    assert world.producer().cancel("cold", "b") == "cancelled"
    later()
    done = run(spark, world, remember="1s")
    assert (done.accepted, done.duplicate) == (1, 0)
    assert warm(world) == {"a"}


def test_hydrate_leaves_void_copies_behind(
    spark: SparkSession, world: World, later: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule(world, "cancelled", "kept")
    real = ColdLog.commit

    def cancel_first(log: ColdLog, entry: Commit) -> None:
        real(log, entry)
        if entry.kind == "demoted":
            assert world.producer().cancel("cold", "cancelled") == "cancelled"

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(ColdLog, "commit", cancel_first)
        assert run_demote(spark, config=world.config, route="cold").void == 1
    later()
    done = run(spark, world)
    assert (done.accepted, done.cancelled) == (1, 0)
    assert warm(world) == {"kept"}
    assert marks(world) == set()


def test_hydrate_while_a_producer_cancels_and_reschedules_obeys_both_or_leaves_it_to_them(
    spark: SparkSession, world: World, later: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    demoted(spark, world, "cancelled", "moved", "kept")
    later()
    real = hydrate.write_envelopes

    def racing(rows: Any, **options: Any) -> Any:
        assert world.producer().cancel("cold", "cancelled") == "recorded"
        assert world.producer().reschedule("cold", "moved", at=LATER_MS + 5) == "recorded"
        return real(rows, **options)

    monkeypatch.setattr(hydrate, "write_envelopes", racing)
    done = run(spark, world)
    assert (done.accepted, done.cancelled) == (2, 1)
    moved = world.producer().get("cold", "moved")
    assert moved is not None
    assert moved.due_at_ms == LATER_MS + 5
    assert world.producer().cancel("cold", "kept") == "cancelled"
    assert {"tcancelled", "tmoved"} <= marks(world), "left meanwhile: they may bind what comes"


@pytest.mark.long
def test_hydrate_leaves_a_row_cold_whose_id_lives_with_other_content(
    spark: SparkSession, world: World, later: Any
) -> None:
    demoted(spark, world, "a", "b")
    other = Envelope.new(b"other", id="a", at=LATER_MS)
    assert world.producer().schedule_many("cold", [other])[0].status == "accepted"
    later()
    done = run(spark, world)
    assert (done.accepted, done.left) == (1, 1)
    assert "the store has other content" in done.first_reason
    assert cold(spark, world) == ["a"]
    assert world.producer().cancel("cold", "a") == "cancelled"
    assert run(spark, world).accepted == 1
    assert warm(world) == {"a", "b"}


def test_hydrate_finishes_a_demote_that_was_killed_first(
    spark: SparkSession, world: World, later: Any
) -> None:
    schedule(world, "a", "b")
    demote_until(spark, world, "before removal")
    later()
    assert run(spark, world).accepted == 2
    assert warm(world) == {"a", "b"}
    assert run_demote(spark, config=world.config, route="cold").batches == 0


@pytest.mark.long
def test_demote_and_hydrate_while_replies_are_lost_lose_nothing(
    spark: SparkSession, world: World, service: Any, later: Any
) -> None:
    ids = [f"i{n:04d}" for n in range(40)]
    schedule(world, *ids)
    with proxied(int(service("redis", "port"))) as proxy:
        world.use(f"redis://127.0.0.1:{proxy.port}/0")
        proxy.lose_reply_to(ids[0].encode())  # of demote, the first call that names it
        assert run_demote(spark, config=world.config, route="cold").removed == len(ids)
        assert (proxy.lost, warm(world)) == (1, set())
        later(99)
        proxy.lose_reply_to(ids[0].encode())  # of schedule
        done = run_hydrate(spark, config=world.config, route="cold")
        assert (proxy.lost, done.accepted + done.duplicate) == (2, len(ids))
    assert warm(world) == {*ids}


def lose_a_store(spark: SparkSession, home: Path) -> World:
    """Make two ids cold, back up with two more in the store; then all change places."""
    (home / "lost").mkdir()
    with redis_server(home / "lost", "--appendonly", "yes", *AT_ONCE) as port:
        world = World(home, f"redis://127.0.0.1:{port}/0")
        to: dict[str, Any] = {"config": world.config, "route": "cold"}
        schedule(world, "a", "b")
        assert run_demote(spark, **to).removed == 2
        schedule(world, "c", "d")
        back_up(port, home / "backup.rdb")
        shutil.copytree(commits(home), home / "backup")
        assert run_demote(spark, **to).removed == 2
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tier, "boundary_ms", lambda _: LATER_MS + 24 * HOUR_MS)
            assert run_hydrate(spark, **to).accepted == 4
        return world


def commits(home: Path) -> Path:
    return home / "cold" / "route=cold" / "_commits"


@pytest.mark.long
def test_restore_of_a_store_and_the_commits_of_its_moment_loses_no_cold_row(
    spark: SparkSession, tmp_path: Path, later: Any
) -> None:
    world = lose_a_store(spark, tmp_path)
    shutil.rmtree(commits(tmp_path))
    shutil.copytree(tmp_path / "backup", commits(tmp_path))
    with restored(tmp_path / "backup.rdb", tmp_path / "restored") as port:
        world.use(f"redis://127.0.0.1:{port}/0")
        world.connection = open_connection(f"redis://127.0.0.1:{port}/0")
        assert warm(world) == {"c", "d"}
        later()
        done = run_hydrate(spark, config=world.config, route="cold")
        assert (done.accepted, done.left) == (2, 0)
        assert warm(world) == {"a", "b", "c", "d"}
