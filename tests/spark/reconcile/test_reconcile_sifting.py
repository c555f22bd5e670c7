"""Bounds of what is judged id by id: what is sifted out, and gaps beyond those that are placed."""

from contextlib import ExitStack
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from duebridge_connectors.spark.jobs import verdict_summary
from duebridge_connectors.spark.jobs.reconcile import reconcile_evidence
from duebridge_connectors.spark.transforms import missing_evidence
from duebridge_connectors.spark.transforms.missing_evidence import outline_of
from duebridge_connectors.spark.transforms.ordinary_ids import odd_facts, odd_keys, sift
from duebridge_connectors.spark.transforms.totals import totals
from duebridge_connectors.spark.transforms.verdict import (
    KINDS,
    Evidence,
    JudgedPeriod,
    facts_of,
    verdicts_of,
)
from tests.spark.reconcile.evidence import Came, Fact, Held, Plot, Said, T, Told, period

DUE = T + 100_000
FAR = T + 10_000_000
SINCE, UNTIL = T - 10, DUE + 1_000


def any_story(random: Random) -> list[Fact]:
    """Of few instants, so that all is said of an id that may be."""
    due, begun = (
        random.choices((DUE, DUE + 7), (3, 1))[0],
        random.choices((T, SINCE - 1), (9, 1))[0],
    )
    header = random.choice((due, due, DUE))
    told = [
        *[Told("accepted", begun, due)] * random.choice((0, 1, 1, 1)),
        *[Said(random.choice(("accepted", "unknown", "cancelled")), T, due, random.choice("pq "))],
        Said(random.choice(("recorded", "in_flight", "cancelled")), random.choice((T - 5, T + 10))),
        *[Came(random.choice((due - 1, due + 5, UNTIL)), begun, header, print_of="p")] * 2,
        Came(due + 5, begun, random.choice((due, DUE, None)), is_dead=True),
        Came(due + 5, begun, due, place=random.choice(("right", "stray", "elsewhere"))),
        Held(random.choice(("ready", "dead", "cold")), random.choice((DUE, DUE * 2)), begun),
        Told(random.choice(("replaced", "rescheduled", "retried")), T + 9, due),
        Told("cancelled", random.choice((T - 5, T + 10, UNTIL + 1)), due, random.choice((0, 1))),
        Told("demoted", T + 11, due),
        *[Told("delivered", random.choice((due + 9, UNTIL + 1)), due, 1)] * 2,
    ]
    return random.sample(told, random.choice((1, 2, 2, 3, 3, 4, 6)))


def any_evidence(spark: SparkSession, stories: int) -> Evidence:
    random, plot = Random(11), Plot()
    for number in range(stories):
        plot.tell(f"{number:04}", *any_story(random), route=random.choice("ab"))
    return plot.evidence(spark)


def windows() -> list[JudgedPeriod]:
    more = {"stuck_before_ms": DUE + 60_000, "late_ms": 500}
    return [period(**more), period(SINCE, UNTIL, **more | {"late_ms": None, "skew_ms": 1})]


@pytest.mark.long
def test_sift_of_any_stories_leaves_out_only_ids_with_nothing_wrong(spark: SparkSession) -> None:
    """So it counts what judging each does."""
    evidence = any_evidence(spark, 3_000)
    for window in windows():
        facts = facts_of(evidence, window)
        full = verdicts_of(facts, window).cache()
        keys = odd_keys(sift(facts, window))
        odd = odd_facts(facts, keys).select("route", "id").distinct()
        rest = full.join(odd, ["route", "id"], "left_anti")
        wrong = " OR ".join((*KINDS, "is_suspect", "size(doubtful) > 0"))
        assert rest.where(wrong).collect() == []
        assert rest.count() > 500, "what is ordinary was sifted too"
        with ExitStack() as kept:
            found = verdict_summary.JudgedIds(kept, evidence, window).verdicts(evidence)
            assert shown(totals(found)) == shown(totals(full))
            assert outline_of(found) == outline_of(full)
        full.unpersist()


def shown(frame: DataFrame) -> list[dict[str, object]]:
    return [row.asDict() for row in frame.orderBy("route").collect()]


@pytest.mark.long
def test_sift_of_more_odd_ids_than_tasks_can_hold_judges_all_in_full(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence, (window, _) = any_evidence(spark, 200), windows()
    wanted = reconcile_evidence(evidence, window)
    monkeypatch.setattr(verdict_summary, "MOST_ODD", 10)
    assert reconcile_evidence(evidence, window) == wanted


def cut_often(gaps: int) -> Plot:
    """Envelopes that came, a gap after each, and one that may have been cancelled in the last."""
    plot = Plot()
    for begun in range(T, T + 100 * gaps, 100):
        plot.tell(f"{begun}", Told("accepted", begun, FAR), Came(FAR, begun, FAR))
        plot.tell("", Told("gap", None, begun + 50, lost=3))
    plot.tell("in doubt", Told("accepted", begun + 1, FAR))
    plot.tell("last", Told("accepted", begun + 60, FAR), Came(FAR, begun + 60, FAR))
    return plot


@pytest.mark.long
def test_reconcile_of_a_journal_with_hundreds_of_gaps_has_a_verdict(spark: SparkSession) -> None:
    found = reconcile_evidence(cut_often(500).evidence(spark), period())
    assert (found.verdict, found.examples) == ("undetermined", {})
    assert (found.doubtful, found.gaps) == ({"lost": ["r/in doubt"]}, 500)


def test_reconcile_of_more_gaps_than_are_placed_takes_all_of_the_journal_for_missing(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_evidence, "MOST_SPANS", 2)
    found = reconcile_evidence(cut_often(3).evidence(spark), period())
    assert (found.verdict, found.examples) == ("undetermined", {})
    assert found.doubtful == {"lost": ["r/in doubt"]}
    assert found.missing[0].startswith("9 entries of the journal of r/0")
