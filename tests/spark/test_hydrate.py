"""Hydrate: cold rows come back before they are due, each once, and never after their cancel."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from duebridge.config.models import HOUR_MS
from duebridge.envelope import Envelope
from duebridge.store.connection import open_connection
from duebridge_connectors.spark.cold.commit_log import ColdLog
from duebridge_connectors.spark.jobs import hydrate
from tests.spark.cold_route import ColdRoute, Killed, die
from tests.spark.world import LATER_MS, World
from tests.support.backup import AT_ONCE, back_up, restored
from tests.support.proxy import proxied
from tests.support.servers import redis_server

MONTH_MS = 30 * 24 * HOUR_MS


def test_hydrate_brings_back_what_is_due_and_leaves_the_rest(cold: ColdRoute, reach: Any) -> None:
    cold.demoted("a", "b", "c", "d", "e")
    before = cold.hydrate()
    assert (before.accepted, str(before)) == (0, "route cold: nothing to bring back")
    reach(hours=2)
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
    cold: ColdRoute, reach: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    cold.demoted("a", "b", "c")
    reach()
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


def test_hydrate_obeys_cancels_and_reschedules_and_drops_what_is_used(
    cold: ColdRoute, world: World, reach: Any
) -> None:
    cold.demoted("kept", "cancelled", "moved", "far")
    producer = world.producer()
    assert producer.cancel("cold", "cancelled") == "recorded"
    assert producer.reschedule("cold", "moved", at=LATER_MS + 77) == "recorded"
    assert producer.reschedule("cold", "far", at=LATER_MS + 2 * MONTH_MS) == "recorded"
    assert cold.marks() == {"tcancelled", "tmoved", "tfar"}
    reach()
    done = cold.hydrate()
    assert (done.accepted, done.cancelled, cold.warm()) == (3, 1, {"kept", "moved", "far"})
    assert world.due("cold", "moved") == LATER_MS + 77
    assert world.due("cold", "far") == LATER_MS + 2 * MONTH_MS
    assert cold.marks() == set()


def test_hydrate_brings_what_was_moved_forward_once_and_leaves_its_file(
    cold: ColdRoute, world: World, reach: Any
) -> None:
    cold.demoted("a", "b")
    assert world.producer().reschedule("cold", "b", delay="1h") == "recorded"
    done = cold.hydrate()
    assert (done.accepted, done.pulled, cold.warm()) == (1, 1, {"b"})
    assert cold.hydrate().pulled == 0, "the tombstone is used up"
    assert world.producer().cancel("cold", "b") == "cancelled"
    reach()
    done = cold.hydrate(remember="1s")
    assert (done.accepted, done.duplicate, cold.warm()) == (1, 0, {"a"})


def test_hydrate_while_a_producer_cancels_and_reschedules_obeys_both_or_leaves_it_to_them(
    cold: ColdRoute, world: World, reach: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.demoted("cancelled", "moved", "kept")
    reach()
    real = hydrate.write_envelopes

    def racing(rows: Any, **options: Any) -> Any:
        assert world.producer().cancel("cold", "cancelled") == "recorded"
        assert world.producer().reschedule("cold", "moved", at=LATER_MS + 5) == "recorded"
        return real(rows, **options)

    monkeypatch.setattr(hydrate, "write_envelopes", racing)
    done = cold.hydrate()
    assert (done.accepted, done.cancelled) == (2, 1)
    assert world.due("cold", "moved") == LATER_MS + 5
    assert world.producer().cancel("cold", "kept") == "cancelled"
    assert {"tcancelled", "tmoved"} <= cold.marks(), "left meanwhile: they may bind what comes"


@pytest.mark.long
def test_hydrate_leaves_a_row_cold_whose_id_lives_with_other_content(
    cold: ColdRoute, world: World, reach: Any
) -> None:
    cold.demoted("a", "b")
    other = Envelope.new(b"other", id="a", at=LATER_MS)
    assert world.producer().schedule_many("cold", [other])[0].status == "accepted"
    reach()
    done = cold.hydrate()
    assert (done.accepted, done.left, cold.ids()) == (1, 1, ["a"])
    assert "the store has other content" in done.first_reason
    assert world.producer().cancel("cold", "a") == "cancelled"
    assert (cold.hydrate().accepted, cold.warm()) == (1, {"a", "b"})


def test_hydrate_finishes_a_demote_that_was_killed_first(cold: ColdRoute, reach: Any) -> None:
    cold.schedule("a", "b")
    cold.demote_until("before removal")
    reach()
    assert (cold.hydrate().accepted, cold.warm()) == (2, {"a", "b"})
    assert cold.demote().batches == 0


@pytest.mark.long
def test_demote_and_hydrate_while_replies_are_lost_lose_nothing(
    cold: ColdRoute, service: Any, reach: Any
) -> None:
    ids = [f"i{n:04d}" for n in range(40)]
    cold.schedule(*ids)
    with proxied(int(service("redis", "port"))) as proxy:
        cold.world.use(f"redis://127.0.0.1:{proxy.port}/0")
        proxy.lose_reply_to(ids[0].encode())  # of demote, the first call that names it
        assert cold.demote().removed == len(ids)
        assert (proxy.lost, cold.warm()) == (1, set())
        reach(99)
        proxy.lose_reply_to(ids[0].encode())  # of schedule
        done = cold.hydrate()
        assert (proxy.lost, done.accepted + done.duplicate) == (2, len(ids))
    assert cold.warm() == {*ids}


@pytest.mark.long
def test_restore_of_a_store_and_the_commits_of_its_moment_loses_no_cold_row(
    spark: SparkSession, tmp_path: Path, reach: Any
) -> None:
    """Two ids are cold and two in the store at the backup; then all change places."""
    lost, commits = tmp_path / "lost", tmp_path / "cold" / "route=cold" / "_commits"
    lost.mkdir()
    with redis_server(lost, "--appendonly", "yes", *AT_ONCE) as port:
        cold = ColdRoute(spark, World(tmp_path, f"redis://127.0.0.1:{port}/0"))
        cold.demoted("a", "b")
        cold.schedule("c", "d")
        back_up(port, tmp_path / "backup.rdb")
        shutil.copytree(commits, tmp_path / "backup")
        assert cold.demote().removed == 2
        reach()
        assert cold.hydrate().accepted == 4
    shutil.rmtree(commits)
    shutil.copytree(tmp_path / "backup", commits)
    with restored(tmp_path / "backup.rdb", tmp_path / "restored") as port:
        cold.world.use(f"redis://127.0.0.1:{port}/0")
        cold.world.connection = open_connection(f"redis://127.0.0.1:{port}/0")
        assert cold.warm() == {"c", "d"}
        done = cold.hydrate()
        assert (done.accepted, done.left, cold.warm()) == (2, 0, {"a", "b", "c", "d"})
