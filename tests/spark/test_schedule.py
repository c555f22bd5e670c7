"""Bulk schedule: columns, counts, and what is due beyond the horizon of a cold tier."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from duebridge.config.models import HOUR_MS
from duebridge.errors import ConfigError
from duebridge_connectors.spark.cold import batches, compaction
from duebridge_connectors.spark.cold.compaction import compact
from duebridge_connectors.spark.commands.job import parse_pairs
from duebridge_connectors.spark.jobs import schedule
from duebridge_connectors.spark.jobs.schedule import run_schedule
from duebridge_connectors.spark.transforms.envelopes import select_columns
from tests.spark.cold_route import ColdRoute, without_patience
from tests.spark.source.test_rows import rejected
from tests.spark.world import LATER_MS, World, setting

MADE = {"body": "concat('order ', number)", "due_at": f"{LATER_MS} + cast(number as bigint)"}


@pytest.fixture
def orders(tmp_path: Path) -> str:
    """Three orders, one of them without a number, as a CSV file."""
    path = tmp_path / "orders.csv"
    path.write_text("number,key,city\n7,k,Rome\n8,,Oslo\n,,Lima\n")
    return str(path)


@pytest.mark.parametrize(
    "more", ["expires_at", "generation", "blob", "REMEMBER_MS", "content_hash"]
)
def test_select_of_an_input_with_a_name_of_packed_rows_leaves_it_out(
    spark: SparkSession, more: str
) -> None:
    frame = spark.sql(f"select 'a' as id, 'x' as body, '1h' as delay, 7 as {more}")
    assert select_columns(frame, {}).columns == ["id", "body", "delay"]


def test_choose_columns_makes_keeps_and_leaves_out(spark: SparkSession) -> None:
    rows = [("7", "k", "Rome"), ("8", "q", "Oslo")]
    frame = spark.createDataFrame(rows, "number string, key string, city string")
    chosen = select_columns(frame, {"body": "upper(city)"}, "number > 7", keep=("number",))
    expected = spark.createDataFrame([("8", "q", "OSLO")], "number string, key string, body string")
    assertDataFrameEqual(chosen, expected)


def test_choose_columns_takes_names_in_any_case_and_the_exact_one_first(
    spark: SparkSession,
) -> None:
    row = spark.sql("select 1 as Key, 2 as Expires, 3 as NUMBER, 4 as Body, 5 as city")
    chosen = select_columns(row, {"body": "city"}, keep=("number",))
    assert [one.asDict() for one in chosen.collect()] == [
        {"key": 1, "expires": 2, "number": 3, "body": 5}
    ]
    with setting(spark, "spark.sql.caseSensitive", "true"):
        both = select_columns(spark.sql("select 1 as Key, 2 as key"), {})
        assert [one.asDict() for one in both.collect()] == [{"key": 2}]


def test_schedule_csv_stores_each_row_once_and_counts_the_refused(
    world: World, orders: str
) -> None:
    options = world.options("plain", id_columns="number")
    first = run_schedule(world.spark, [orders], form="csv", columns=MADE, **options)
    assert (first.accepted, first.refused) == (2, 1)
    again = run_schedule(world.spark, [orders], form="csv", columns=MADE, **options)
    assert (again.accepted, again.duplicate, again.refused) == (0, 2, 1)
    assert len(world.ids("plain")) == 2


def test_schedule_from_what_cannot_be_read_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match=r"format: expected one of parquet, .*; got 'xls'"):
        run_schedule(world.spark, ["x"], form="xls", **world.options("plain"))
    with pytest.raises(ConfigError, match="the name of one table; got 2"):
        run_schedule(world.spark, ["x", "y"], form="table", **world.options("plain"))


def test_read_pairs_without_a_sign_are_refused() -> None:
    assert parse_pairs("--column", ["a=b = c"]) == {"a": "b = c"}
    with pytest.raises(ConfigError, match="--column: expected NAME=VALUE; got 'due_at'"):
        parse_pairs("--column", ["due_at"])


@pytest.mark.long
def test_run_the_command_schedules_and_ends_with_the_counts(world: World, orders: str) -> None:
    words = ["spark", "schedule", "plain", orders, "--format", "csv", "--id-columns", "number"]
    words += [f"--column={name}={made}" for name, made in MADE.items()]
    words += ["--where", "number > 7", "--output", "json"]
    done = world.command(*words, DUEBRIDGE_ACTOR="ada")
    assert (done.code, done.json()["accepted"]) == (0, 1), done.err
    assert world.journalled("plain") == [("accepted", "ada")]
    assert done.err == "", "the counts are said once"


@pytest.mark.parametrize(
    "job",
    [["demote"], ["hydrate"], ["schedule", "x.csv"], ["intake", "topic", "--checkpoint", "x"]],
)
def test_job_of_an_unknown_route_is_refused_before_spark_starts(
    world: World, tmp_path: Path, job: list[str]
) -> None:
    name, *more = job
    done = world.command("spark", name, "plian", *more, JAVA_HOME=str(tmp_path))
    assert done.code == 2
    assert done.err.startswith("duebridge: route: expected one of the configuration")
    assert "did you mean plain?" in done.err


SCHEMA = "id string, body string, due_at bigint, delay string, expires string"
ROWS = [
    ("far", "x", LATER_MS, None, None),
    ("far too", "x", None, "40d", "41d"),
    ("near", "x", None, "6d", None),
    ("late", "x", 5, None, None),
    ("too far", "x", None, "400d", None),
    ("expires first", "x", LATER_MS, None, "20d"),
    ("too large", "x" * 300_000, LATER_MS, None, None),
    ("undue", "x", None, None, None),
]


def scheduled(to: ColdRoute, rows: list[tuple[Any, ...]], **options: Any) -> Any:
    to.spark.createDataFrame(rows, SCHEMA).createOrReplaceTempView("given")
    return run_schedule(to.spark, ["given"], form="table", **to.to, **options)


def test_schedule_sends_far_rows_to_the_cold_tier_and_all_others_to_the_store(
    cold: ColdRoute,
) -> None:
    done = scheduled(cold, ROWS)
    assert (done.cold, done.accepted, done.refused, done.rows) == (2, 2, 4, 8)
    assert (cold.warm(), cold.ids()) == ({"near", "late"}, ["far", "far too"])
    again = scheduled(cold, ROWS)
    assert (again.cold, again.accepted, again.duplicate, again.refused) == (0, 0, 4, 4)


def test_schedule_of_no_new_far_row_counts_all_where_spark_plans_adaptively(
    cold: ColdRoute,
) -> None:
    """As it does by itself: what turns out empty is left out, with what counts the far rows."""
    near, far = ("near", "x", None, "6d", None), ("far", "x", LATER_MS, None, None)
    with setting(cold.spark, "spark.sql.adaptive.enabled", "true"):
        assert scheduled(cold, [near]).accepted == 1
        done = scheduled(cold, [near, far])
        assert (done.cold, done.duplicate) == (1, 1)
        again = scheduled(cold, [near, far])
        assert (again.cold, again.duplicate, again.rows) == (0, 2, 2)


def test_cold_row_that_was_scheduled_straight_obeys_a_cancel_and_comes_back(
    cold: ColdRoute,
) -> None:
    producer = cold.world.producer()
    assert producer.cancel("cold", "kept") == "recorded", "before it exists: it binds nothing"
    rows = [(name, "x", LATER_MS, None, None) for name in ("kept", "cancelled", "moved")]
    assert scheduled(cold, rows).cold == 3
    assert producer.cancel("cold", "cancelled") == "recorded"
    assert producer.reschedule("cold", "moved", at=LATER_MS + 7) == "recorded"
    cold.reach(hours=1)
    done = cold.hydrate()
    assert (done.accepted, done.cancelled, cold.warm()) == (2, 1, {"kept", "moved"})
    assert cold.world.due("cold", "kept") == LATER_MS
    assert cold.world.due("cold", "moved") == LATER_MS + 7
    receipt = producer.schedule("cold", b"x", id="kept", at=LATER_MS)
    assert receipt.status == "duplicate", "its content is what a producer would have stored"


@pytest.mark.long
def test_schedule_of_far_rows_whose_ids_live_is_judged_by_the_store(cold: ColdRoute) -> None:
    producer = cold.world.producer()
    producer.schedule("cold", b"x", id="same", at=LATER_MS)
    producer.schedule("cold", b"other", id="other", delay="1h")
    rows = [(name, "x", LATER_MS, None, None) for name in ("same", "other", "new")]
    to = {"rejects": str(cold.world.home / "rejects"), "run": "first"}
    done = scheduled(cold, rows, **to)
    assert (done.cold, done.duplicate, done.conflict, done.rows) == (1, 1, 1, 3)
    assert [row["id"] for row in rejected(cold.world.home / "rejects")] == ["other"]
    again = scheduled(cold, rows, **to)
    assert (again.cold, again.duplicate, again.conflict) == (0, 2, 1)
    assert producer.cancel("cold", "same") == "cancelled"
    cold.reach(hours=1)
    assert (cold.hydrate().accepted, cold.warm()) == (1, {"other", "new"})


@pytest.mark.long
def test_envelope_whose_id_a_job_scheduled_again_goes_cold_and_comes_back(cold: ColdRoute) -> None:
    cold.world.producer().schedule("cold", b"x", id="x", at=LATER_MS)
    assert scheduled(cold, [("x", "x", LATER_MS, None, None)]).duplicate == 1
    assert (cold.demote().removed + cold.demote().removed, cold.warm()) == (1, set())
    cold.reach(hours=1)
    assert (cold.hydrate().accepted, cold.warm(), cold.marks()) == (1, {"x"}, set())


@pytest.mark.long
@pytest.mark.parametrize("ended", ["copied meanwhile", "taken over"])
def test_schedule_of_what_only_ended_rows_have_makes_it_cold(cold: ColdRoute, ended: str) -> None:
    producer = cold.world.producer()
    producer.schedule("cold", b"x", id="x", at=LATER_MS)
    if ended == "copied meanwhile":
        cold.demote_until("before removal")
    else:
        cold.demote()
        assert producer.schedule("cold", b"other", id="x", delay="1h").status == "accepted"
    assert producer.cancel("cold", "x") == "cancelled"
    cold.demote()
    assert scheduled(cold, [("x", "x", LATER_MS, None, None)]).cold == 1
    cold.reach(hours=1)
    assert (cold.hydrate().accepted, bodies(cold)) == (1, {"x": b"x"})


def bodies(cold: ColdRoute) -> dict[str, bytes]:
    """What is in the store, by id."""
    rows = cold.world.read(route="cold").select("id", "body").collect()
    return {row.id: bytes(row.body) for row in rows}


@pytest.mark.long
def test_schedule_of_a_far_row_whose_id_is_cold_with_other_content_takes_its_place(
    cold: ColdRoute,
) -> None:
    cold.demoted("demoted")
    assert scheduled(cold, [("loaded", "one", LATER_MS, None, None)]).cold == 1
    later = [(name, "two", LATER_MS, None, None) for name in ("demoted", "loaded", "new")]
    assert scheduled(cold, later).cold == 3
    again = scheduled(cold, [("loaded", "one", LATER_MS, None, None)])
    assert (again.cold, again.duplicate) == (0, 1), "the first job again changes nothing"
    cold.reach()
    done = cold.hydrate()
    assert (done.accepted, done.left) == (3, 0)
    assert bodies(cold) == dict.fromkeys(("demoted", "loaded", "new"), b"two")
    assert cold.ids() == []


@pytest.mark.long
def test_schedule_beside_another_job_of_the_same_id_ends_what_that_committed_meanwhile(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after_another(*given: Any) -> Any:
        monkeypatch.setattr(schedule, "write_batch", write_batch)
        written = write_batch(*given)
        assert scheduled(cold, [("x", "other", LATER_MS, None, None)]).cold == 1
        return written

    write_batch = schedule.write_batch
    monkeypatch.setattr(schedule, "write_batch", after_another)
    done = scheduled(cold, [("x", "last", LATER_MS, None, None)])
    assert (done.cold, done.accepted) == (0, 1), "the other's row is of a later generation"
    cold.reach(hours=1)
    assert cold.hydrate().accepted == 0
    assert bodies(cold) == {"x": b"last"}
    assert cold.hydrate().left == 0


@pytest.mark.long
def test_schedule_whose_ids_go_cold_meanwhile_keeps_exactly_what_came_last(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One before its mark is in the store, one after it."""

    def with_others(*given: Any) -> Any:
        with without_patience():  # the schedule has the lease
            cold.demoted("before")
            marked = mark_batch(*given)
            cold.demoted("after")
        return marked

    mark_batch = batches.mark_batch
    monkeypatch.setattr(batches, "mark_batch", with_others)
    names = ("before", "after", "alone")
    done = scheduled(cold, [(name, "loaded", LATER_MS, None, None) for name in names])
    assert (done.cold, done.accepted) == (1, 2), "the store is asked about the others"
    cold.reach(hours=1)
    assert cold.hydrate().accepted == 1
    assert bodies(cold) == dict.fromkeys(names, b"loaded")
    assert (cold.hydrate().left, cold.ids()) == (0, [])


def test_schedule_again_of_what_is_cancelled_meanwhile_brings_nothing_back(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.demoted("other")
    given = [("x", "x", LATER_MS, None, None)]
    assert scheduled(cold, given, cold=False).accepted == 1

    def before_a_cancel(*given: Any) -> Any:
        written = write_batch(*given)
        assert cold.world.producer().cancel("cold", "x") == "cancelled"
        return written

    write_batch = schedule.write_batch
    monkeypatch.setattr(schedule, "write_batch", before_a_cancel)
    done = scheduled(cold, given)
    assert (done.cold, done.cancelled) == (0, 1)
    cold.reach()
    assert (cold.hydrate().accepted, cold.warm()) == (1, {"other"})


def test_schedule_stores_what_is_due_before_the_end_of_a_hydrate_that_ran_meanwhile(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one may come too late."""

    def before_a_hydrate(*given: Any) -> Any:
        written = write_batch(*given)
        cold.reach(hours=1)
        cold.hydrate()
        return written

    write_batch = schedule.write_batch
    monkeypatch.setattr(schedule, "write_batch", before_a_hydrate)
    rows = [(name, "x", LATER_MS + n * HOUR_MS, None, None) for n, name in enumerate("xy")]
    done = scheduled(cold, rows)
    assert (done.cold, done.accepted, cold.warm()) == (1, 1, {"x"})
    cold.reach()
    assert (cold.hydrate().accepted, cold.warm()) == (1, {"x", "y"})


def test_schedule_after_a_longer_horizon_writes_no_file_of_what_is_due_within_it(
    cold: ColdRoute,
) -> None:
    with cold.tier.notes() as shards:
        for shard in shards:
            shard.note_hydrated(LATER_MS + HOUR_MS)
    done = scheduled(cold, [("x", "x", LATER_MS, None, None)])
    assert (done.cold, done.accepted, cold.warm()) == (0, 1, {"x"})
    assert cold.tier.log.written("") == []


@pytest.mark.long
def test_schedule_again_of_a_row_that_was_refused_is_refused_whatever_was_merged(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.world.producer().schedule("cold", b"other", id="x", delay="1h")
    given = [("x", "loaded", LATER_MS, None, None)]
    assert scheduled(cold, given).conflict == 1
    monkeypatch.setattr(compaction, "FEW", 0)
    assert compact(cold.tier.log, cold.tier.now_ms()).lists == 1
    assert scheduled(cold, given).conflict == 1


def test_schedule_of_far_rows_that_share_an_id_is_judged_by_the_store(cold: ColdRoute) -> None:
    rows = [("x", body, LATER_MS, None, None) for body in ("one", "two")]
    done = scheduled(cold, [*rows, ("y", "one", LATER_MS, None, None)])
    assert (done.cold, done.accepted, done.conflict, done.rows) == (1, 1, 1, 3)
    assert cold.warm() == {"x"}
    cold.reach(hours=1)
    assert (cold.hydrate().accepted, cold.warm()) == (1, {"x", "y"})


def test_schedule_of_far_rows_that_are_the_same_counts_each(cold: ColdRoute) -> None:
    rows = [(name, "x", LATER_MS, None, None) for name in "xxyxz"]
    done = scheduled(cold, rows)
    assert (done.cold, done.duplicate, done.accepted, done.rows) == (3, 2, 0, 5)
    again = scheduled(cold, [*rows, ("z", "other", LATER_MS, None, None)])
    assert (again.cold, again.duplicate, again.rows) == (1, 5, 6)


def test_schedule_of_far_rows_that_are_the_same_as_a_living_one_counts_each(
    cold: ColdRoute,
) -> None:
    cold.world.producer().schedule("cold", b"other", id="x", delay="1h")
    done = scheduled(cold, [(name, "x", LATER_MS, None, None) for name in "xxyy"])
    assert (done.cold, done.duplicate, done.conflict, done.rows) == (1, 1, 2, 4)


def test_schedule_of_an_expression_that_changes_meanwhile_has_each_row_in_one_half(
    cold: ColdRoute, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(due_ms: int) -> None:
        jvm: Any = cold.spark._jvm
        jvm.java.lang.System.setProperty("duebridge.due", str(due_ms))

    def before_another_value(*given: Any) -> Any:
        written = write_batch(*given)
        say(LATER_MS)
        return written

    write_batch = schedule.write_batch
    monkeypatch.setattr(schedule, "write_batch", before_another_value)
    say(5)
    due = "cast(java_method('java.lang.System', 'getProperty', 'duebridge.due') as bigint)"
    done = scheduled(cold, [("x", "x", None, None, None)], columns={"due_at": due})
    assert (done.accepted, done.cold, cold.warm()) == (1, 0, {"x"})


def test_schedule_that_keeps_all_in_the_store_writes_no_file(cold: ColdRoute) -> None:
    done = scheduled(cold, ROWS[:1], cold=False)
    assert (done.cold, done.accepted, cold.ids()) == (0, 1, [])
