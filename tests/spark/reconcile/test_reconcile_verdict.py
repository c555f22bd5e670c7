"""The verdict in Spark is that of `duebridge.audit`: the same histories, the same words."""

from collections.abc import Iterable, Iterator
from functools import reduce
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from duebridge.audit import BROKEN, AcceptedEnvelope, ArrivedEnvelope, AuditVerdict, History, audit
from duebridge_connectors.spark.transforms.facts import (
    arrived_facts,
    held_facts,
    journal_facts,
    receipt_facts,
)
from duebridge_connectors.spark.transforms.totals import totals
from duebridge_connectors.spark.transforms.verdict import (
    aggregate_lives,
    judge,
    violations,
)
from tests.spark.reconcile.evidence import instant

OF = "route string, id string"
ARRIVED = f"{OF}, at timestamp, dead_letter boolean, fingerprint string"
RECEIPT = f"{OF}, due_at timestamp, at timestamp, status string, fingerprint string"
HELD = f"{OF}, state string, waits_for timestamp"
JOURNAL = f"{OF}, kind string, at timestamp, due_at timestamp, attempt int, sequence long"
NEVER = 4_000_000_000_000
DUE = 1_000


def receipts_of(route: str, history: History) -> Iterator[tuple[Any, ...]]:
    for made in history.accepted:
        due = instant(made.due_at_ms)
        yield route, made.id, due, instant(1), "accepted", made.fingerprint
    asked = {"cancelled": history.cancelled, "in_flight": history.excused}
    for status, names in (asked | {"unknown": history.attempted}).items():
        yield from ((route, name, None, instant(2), status, "") for name in names)


def arrived_of(route: str, history: History) -> Iterator[tuple[Any, ...]]:
    for is_dead, found in ((False, history.delivered), (True, history.dead)):
        yield from ((route, of.id, instant(of.at_ms), is_dead, of.fingerprint) for of in found)


def held_of(route: str, history: History) -> Iterator[tuple[Any, ...]]:
    yield from ((route, name, state, instant(DUE)) for name, state in history.held.items())


def lives(*facts: DataFrame) -> DataFrame:
    return aggregate_lives(reduce(DataFrame.unionByName, facts))


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
    verdicts = judge(lives(*facts), NEVER).cache()
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

    def arrivals() -> list[ArrivedEnvelope]:
        return [
            ArrivedEnvelope(
                random.choice(names), DUE + random.randint(-1, 1), random.choice(("", *"pq"))
            )
            for _ in range(random.randint(0, 4))
        ]

    accepted = [AcceptedEnvelope(each, DUE, random.choice(("", *"pq"))) for each in some(6)]
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


def accepted(name: str, at: int = 20, due: int = 30) -> tuple[str, str, int, int, None]:
    return (name, "accepted", at, due, None)


def arrived(spark: SparkSession, *rows: tuple[str, int]) -> DataFrame:
    made = [("r", name, instant(at), False, "") for name, at in rows]
    return arrived_facts(spark.createDataFrame(made, ARRIVED))


def begun(spark: SparkSession, *rows: tuple[str, int, int | None]) -> DataFrame:
    """Of id, time, and when the message says that its life began."""
    made = [("r", name, instant(at), False, "", instant(of)) for name, at, of in rows]
    schema = f"{ARRIVED}, scheduled_at timestamp"
    return arrived_facts(spark.createDataFrame(made, schema), 10, 100)


def named(*facts: DataFrame, late_ms: int | None = None) -> set[tuple[str, str]]:
    found = violations(judge(lives(*facts), NEVER, late_ms)).collect()
    return {(row.kind, row.id) for row in found}


def test_journal_says_what_was_accepted_and_when_it_is_due_by_its_last_word(
    spark: SparkSession,
) -> None:
    rows = journal(
        spark,
        *(accepted(name) for name in ("lost", "moved", "ended", "dropped")),
        ("moved", "rescheduled", 20, 60, None),
        accepted("before", at=9),
        accepted("behind", at=101, due=130),
        ("ended", "delivered", 101, 30, 1),
        ("dropped", "dropped", 40, 30, 3),
    )
    assert named(rows, arrived(spark, ("moved", 59))) == {("lost", "lost"), ("early", "moved")}


def test_journal_of_a_cancel_after_an_attempt_promises_nothing(spark: SparkSession) -> None:
    cancels = [("sure", "cancelled", 25, 30, 0), ("unsure", "cancelled", 45, 30, 1)]
    rows = journal(spark, accepted("sure"), accepted("unsure"), *cancels)
    assert named(rows) == set()
    found = named(rows, arrived(spark, ("sure", 40), ("unsure", 40)))
    assert found == {("after_cancel", "sure")}


def test_id_of_two_lives_may_arrive_twice_and_not_more(spark: SparkSession) -> None:
    ids = ("well", "once", "thrice")
    rows = journal(spark, *(accepted(name, *life) for name in ids for life in ((20, 30), (50, 60))))
    twice = [(name, at) for name in ("well", "thrice") for at in (31, 61)]
    found = named(rows, arrived(spark, *twice, ("once", 31), ("thrice", 62)))
    assert found == {("lost", "once"), ("duplicates", "thrice")}


def test_copy_of_one_life_stands_for_no_other(spark: SparkSession) -> None:
    ids = ("well", "cart", "silent")
    rows = journal(spark, *(accepted(name, *life) for name in ids for life in ((20, 30), (50, 60))))
    well = [("well", 31, 20), ("well", 32, 20), ("well", 61, 50)]
    cart = [("cart", 31, 20), ("cart", 32, 20)]
    silent = [("silent", 31, None), ("silent", 61, None)]  # without its header anything may be
    facts = rows, begun(spark, *well, *cart, *silent)
    assert named(*facts) == {("duplicates", "well"), ("lost", "cart"), ("duplicates", "cart")}
    (row,) = totals(judge(lives(*facts), NEVER)).collect()
    assert row.duplicate_copies == 2


def test_journal_of_what_was_demoted_and_came_back_is_of_one_life(spark: SparkSession) -> None:
    ids = ("back", "cold", "gone")
    demoted = [(name, "demoted", 30, 80, None) for name in ids]
    first = [accepted(name, due=80) for name in ids]
    rows = journal(spark, *first, *demoted, accepted("back", at=70, due=80))
    held = held_facts(spark.createDataFrame([("r", "cold", "cold", instant(NEVER))], HELD))
    assert named(rows, held, arrived(spark, ("back", 81))) == {("lost", "gone")}


def test_late_is_what_came_later_than_the_bound(spark: SparkSession) -> None:
    facts = journal(spark, accepted("a")), arrived(spark, ("a", 35))
    assert named(*facts, late_ms=4) == {("late", "a")}
    assert named(*facts, late_ms=5) == named(*facts) == set()


def test_held_is_stuck_only_where_it_should_have_moved_by_now(spark: SparkSession) -> None:
    rows = journal(spark, accepted("a"), accepted("b", due=90))
    held = [("r", "a", "ready", instant(30)), ("r", "b", "pending", instant(90))]
    facts = held_facts(spark.createDataFrame(held, HELD))
    (row,) = violations(judge(lives(rows, facts), 50)).collect()
    assert (row.kind, row.id, row.held) == ("stuck", "a", 1)
