"""The verdict in Spark is that of `duebridge.audit`: the same histories, the same words."""

from collections.abc import Iterable
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from duebridge.audit import Accepted, Arrived, AuditVerdict, History, audit
from duebridge_connectors.spark.transforms.facts import (
    arrived_facts,
    held_facts,
    journal_facts,
    receipt_facts,
)
from duebridge_connectors.spark.transforms.verdict import (
    BROKEN,
    aggregate_lives,
    judge,
    totals,
    violations,
)

ARRIVED = "route string, id string, at timestamp, dead_letter boolean, fingerprint string"
RECEIPT = "route string, id string, due_at timestamp, at timestamp, status string,"
RECEIPT += " fingerprint string"
HELD = "route string, id string, state string, waits_for timestamp"
JOURNAL = "route string, id string, kind string, at timestamp, due_at timestamp, attempt int,"
JOURNAL += " sequence long"
NEVER = 4_000_000_000_000
DUE = 1_000


def instant(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def receipts_of(route: str, history: History) -> list[tuple[Any, ...]]:
    asked = (
        ("cancelled", history.cancelled),
        ("in_flight", history.excused),
        ("unknown", history.attempted),
    )
    return [
        *(
            (route, each.id, instant(each.due_at_ms), instant(1), "accepted", each.fingerprint)
            for each in history.accepted
        ),
        *((route, each, None, instant(2), status, "") for status, of in asked for each in of),
    ]


def arrived_of(route: str, history: History) -> list[tuple[Any, ...]]:
    return [
        (route, each.id, instant(each.at_ms), is_dead, each.fingerprint)
        for is_dead, found in ((False, history.delivered), (True, history.dead))
        for each in found
    ]


def held_of(route: str, history: History) -> list[tuple[Any, ...]]:
    return [(route, each, state, instant(DUE)) for each, state in history.held.items()]


def kinds_of(verdict: AuditVerdict) -> set[tuple[str, str]]:
    found = {(kind, each) for kind in BROKEN for each in getattr(verdict, kind)}
    found |= {("in_two_places", each) for each in verdict.in_two_places}
    return found | {("duplicates", each) for each in verdict.duplicates}


def compare(spark: SparkSession, histories: Iterable[History]) -> None:
    """Judge all histories at once, each as a route of its own."""
    by_route = {f"r{number}": history for number, history in enumerate(histories)}
    receipts, arrived, held = (
        [row for route, of in by_route.items() for row in rows_of(route, of)]
        for rows_of in (receipts_of, arrived_of, held_of)
    )
    facts = [
        receipt_facts(spark.createDataFrame(receipts, RECEIPT)),
        arrived_facts(spark.createDataFrame(arrived, ARRIVED)),
        held_facts(spark.createDataFrame(held, HELD)),
    ]
    verdicts = judge(aggregate_lives(facts), NEVER).cache()
    found: dict[str, set[tuple[str, str]]] = {route: set() for route in by_route}
    for row in violations(verdicts).collect():
        found[row.route].add((row.kind, row.id))
    counts = {row.route: row for row in totals(verdicts).collect()}
    for route, history in by_route.items():
        wanted = audit(history)
        assert found[route] == kinds_of(wanted), history
        for name in ("accepted", "delivered", "cancelled", "dead", "duplicate_copies"):
            assert (counts[route][name] if route in counts else 0) == getattr(wanted, name), name
        if route in counts:
            assert counts[route]["recovered"] == len(wanted.recovered)
    verdicts.unpersist()


def any_history(random: Random) -> History:
    """Of a few ids, so that what is said of them collides in every way."""
    names = "abcdef"

    def some(most: int) -> list[str]:
        return random.sample(names, random.randint(0, most))

    def arrivals() -> list[Arrived]:
        return [
            Arrived(random.choice(names), DUE + random.randint(-1, 1), random.choice(("", *"pq")))
            for _ in range(random.randint(0, 4))
        ]

    accepted = [Accepted(each, DUE, random.choice(("", *"pq"))) for each in some(6)]
    return History(
        accepted,
        arrivals(),
        arrivals(),
        cancelled=frozenset(some(2)),
        excused=frozenset(some(2)),
        attempted=frozenset(some(2)) - {each.id for each in accepted},
        held={each: random.choice(("pending", "retry", "dead")) for each in some(2)},
    )


def test_verdict_on_any_histories_is_that_of_the_audit(spark: SparkSession) -> None:
    random = Random(7)
    compare(spark, [any_history(random) for _ in range(500)])


def journal(spark: SparkSession, *rows: tuple[str, str, int, int, int | None]) -> DataFrame:
    """Of id, kind, time, due instant and attempt."""
    made = [
        ("r", name, kind, instant(at), instant(due), attempt, number)
        for number, (name, kind, at, due, attempt) in enumerate(rows)
    ]
    return journal_facts(spark.createDataFrame(made, JOURNAL), 10, 100)


def arrived(spark: SparkSession, *rows: tuple[str, int]) -> DataFrame:
    made = [("r", name, instant(at), False, "") for name, at in rows]
    return arrived_facts(spark.createDataFrame(made, ARRIVED))


def named(*facts: DataFrame, late_ms: int | None = None) -> set[tuple[str, str]]:
    found = violations(judge(aggregate_lives([*facts]), NEVER, late_ms)).collect()
    return {(row.kind, row.id) for row in found}


def test_journal_says_what_was_accepted_and_when_it_is_due_by_its_last_word(
    spark: SparkSession,
) -> None:
    rows = journal(
        spark,
        ("lost", "accepted", 20, 30, None),
        ("moved", "accepted", 20, 30, None),
        ("moved", "rescheduled", 20, 60, None),
        ("before", "accepted", 9, 30, None),
        ("behind", "accepted", 101, 130, None),
        ("ended", "accepted", 20, 30, None),
        ("ended", "delivered", 101, 30, 1),
        ("dropped", "accepted", 20, 30, None),
        ("dropped", "dropped", 40, 30, 3),
    )
    assert named(rows, arrived(spark, ("moved", 59))) == {("lost", "lost"), ("early", "moved")}


def test_journal_of_a_cancel_after_an_attempt_promises_nothing(spark: SparkSession) -> None:
    rows = journal(
        spark,
        ("sure", "accepted", 20, 30, None),
        ("sure", "cancelled", 25, 30, 0),
        ("unsure", "accepted", 20, 30, None),
        ("unsure", "cancelled", 45, 30, 1),
    )
    assert named(rows) == set()
    found = named(rows, arrived(spark, ("sure", 40), ("unsure", 40)))
    assert found == {("after_cancel", "sure")}


def test_id_of_two_lives_may_arrive_twice_and_not_more(spark: SparkSession) -> None:
    rows = journal(spark, ("a", "accepted", 20, 30, None), ("a", "accepted", 50, 60, None))
    assert named(rows, arrived(spark, ("a", 31), ("a", 61))) == set()
    assert named(rows, arrived(spark, ("a", 31))) == {("lost", "a")}
    assert named(rows, arrived(spark, ("a", 31), ("a", 61), ("a", 62))) == {("duplicates", "a")}


def test_journal_of_what_was_demoted_and_came_back_is_of_one_life(spark: SparkSession) -> None:
    rows = journal(
        spark,
        ("back", "accepted", 20, 80, None),
        ("back", "demoted", 30, 80, None),
        ("back", "accepted", 70, 80, None),
        ("cold", "accepted", 20, 80, None),
        ("cold", "demoted", 30, 80, None),
        ("gone", "accepted", 20, 80, None),
        ("gone", "demoted", 30, 80, None),
    )
    held = held_facts(spark.createDataFrame([("r", "cold", "cold", instant(NEVER))], HELD))
    assert named(rows, held, arrived(spark, ("back", 81))) == {("lost", "gone")}


@pytest.mark.parametrize(("late_ms", "found"), [(4, {("late", "a")}), (5, set()), (None, set())])
def test_late_is_what_came_later_than_the_bound(
    spark: SparkSession, late_ms: int | None, found: set[tuple[str, str]]
) -> None:
    rows = journal(spark, ("a", "accepted", 20, 30, None))
    assert named(rows, arrived(spark, ("a", 35)), late_ms=late_ms) == found


def test_held_is_stuck_only_where_it_should_have_moved_by_now(spark: SparkSession) -> None:
    rows = journal(spark, ("a", "accepted", 20, 30, None), ("b", "accepted", 20, 90, None))
    held = [("r", "a", "ready", instant(30)), ("r", "b", "pending", instant(90))]
    facts = held_facts(spark.createDataFrame(held, HELD))
    (row,) = violations(judge(aggregate_lives([rows, facts]), 50)).collect()
    assert (row.kind, row.id, row.held) == ("stuck", "a", 1)
