"""What became of an id's other lives is charged to none of those judged."""

import pytest
from pyspark.sql import SparkSession

from duebridge_connectors.spark.jobs.reconcile import reconcile_evidence
from duebridge_connectors.spark.transforms.id_histories import (
    ArrivedMessage,
    CallAnswer,
    JournalEvent,
    read_story,
)
from duebridge_connectors.spark.transforms.verdict import BROKEN
from tests.spark.reconcile.evidence import Came, Fact, Held, Plot, Said, T, Told, period

DAY = 86_400_000
DUE, FAR = T + 100_000, T + 9 * DAY
UNTIL, OLD = T + DAY, T - 3 * DAY
AFTER = UNTIL + 50

Stories = dict[str, list[Fact]]


def life(begun: int, due: int = DUE) -> list[Fact]:
    return [Told("accepted", begun, due), Came(due + 10, begun, due), Told("delivered", due + 20)]


def cold(begun: int, due: int = FAR) -> list[Fact]:
    return [Told("accepted", begun, due), Told("demoted", begun + 50, due)]


def cancelled(begun: int, at: int, due: int = FAR) -> list[Fact]:
    return [Told("accepted", begun, due), Told("cancelled", at, due, 0)]


AGAIN = T + 900
FIRST = life(T + 1, T + 50)
MOVED = [Told("accepted", AFTER, FAR), Told("rescheduled", AFTER + 10, FAR + DAY)]
WAITS = Held("cold", FAR, AGAIN)
TOLD_OLD = [Said("accepted", OLD, FAR), Said("cancelled", OLD + 5), Said("accepted", AGAIN, DUE)]

WELL: Stories = {
    "cancelled in the period": [*cancelled(OLD, T + 700), *life(AGAIN)],
    "cancelled before it": [*cancelled(T - 3_000, T - 2_000), *life(AGAIN)],
    "cancelled before it, as receipts tell": [*TOLD_OLD, *life(AGAIN)],
    "told by a clock ahead": [*cancelled(OLD, T + 700), *life(AGAIN), Said("cancelled", T + 5_000)],
    "cancelled after it": [*life(AGAIN), *cancelled(AFTER, AFTER + 10)],
    "moved after it": [*life(AGAIN), *MOVED, Held("pending", FAR + DAY, AFTER)],
    "second waits cold": [*FIRST, *cold(AGAIN), WAITS],
    "both were cold": [*cold(T, T + 50), *life(T + 60, T + 90), *cold(AGAIN), WAITS],
    "cancelled while cold": [*FIRST, *cold(AGAIN), Told("cancelled", T + 2_000, FAR, 0)],
    "cold since before": [
        *(Told("accepted", T - 5_000, DUE), Told("demoted", T + 5, DUE), *life(AGAIN)),
        *(Told("accepted", T + 200_000, FAR), Held("pending", FAR, T + 200_000)),
    ],
    "recorded before its first": [
        *(Said("recorded", T + 5), Said("accepted", AGAIN, DUE), *life(AGAIN)),
    ],
    "recorded in the same ms": [
        *(Said("recorded", AGAIN), Said("accepted", AGAIN, DUE), *life(AGAIN)),
    ],
    "recorded after its last": [
        *(Said("accepted", AGAIN, DUE), Said("recorded", DUE + 90_000), *life(AGAIN)),
    ],
    "recorded alone": [Said("recorded", T + 5), *life(AGAIN)],
    "first moved forward": [
        *(Told("accepted", T + 1, FAR), Told("rescheduled", T + 5, T + 50)),
        *(Came(T + 60, T + 1, T + 50), Told("delivered", T + 61), *life(AGAIN)),
    ],
}
LOST: Stories = {
    "cancelled in the period": [*cancelled(OLD, T + 700), Told("accepted", AGAIN, DUE)],
    "for the same instant": [*cancelled(OLD, T + 700, DUE), Told("accepted", AGAIN, DUE)],
    "cancelled after it": [Told("accepted", AGAIN, DUE), *cancelled(AFTER, AFTER + 10)],
    "ended after it": [Told("accepted", AGAIN, DUE), *life(AFTER, AFTER + 500)],
    "out of the cold tier": [*FIRST, *cold(AGAIN)],
    "recorded before its first": [
        *(Said("recorded", T + 5), Said("accepted", AGAIN, DUE), Told("accepted", AGAIN, DUE)),
    ],
}
AFTER_CANCEL: Stories = {
    "of the second life": [*cancelled(OLD, T + 700), *life(AGAIN), Told("cancelled", DUE, DUE, 0)],
    "of the first life": [
        *(*life(AGAIN), Told("cancelled", DUE - 5, DUE, 0), *cancelled(AFTER, AFTER + 10)),
    ],
    "known by receipts alone": [
        *(Said("accepted", AGAIN, DUE), Said("cancelled", T + 1_000), *life(AGAIN)),
    ],
    "straight to the cold tier": [
        *(Said("accepted", T, DUE), Said("recorded", T + 700), *life(T + 90_000)),
    ],
}
PLANTED = {"lost": LOST, "after_cancel": AFTER_CANCEL}


@pytest.mark.long
@pytest.mark.parametrize("is_dated", [False, True])
def test_reconcile_of_lives_outside_the_period_charges_them_to_none_within(
    spark: SparkSession, is_dated: bool
) -> None:
    plot = Plot()
    for kind, stories in {"well": WELL, **PLANTED}.items():
        for name, facts in stories.items():
            plot.tell(name, *facts, route=kind)
    evidence = plot.evidence(spark)._replace(is_dated=is_dated)
    found = reconcile_evidence(evidence, period(T, UNTIL, stuck_before_ms=T))
    assert found.doubtful == {}
    counts = {of.route: {kind: getattr(of, kind) for kind in BROKEN} for of in found.routes}
    none = dict.fromkeys(BROKEN, 0)
    named = {kind: none | {kind: len(stories)} for kind, stories in PLANTED.items()}
    assert counts == {"well": none, **named}, found.examples


@pytest.mark.parametrize(
    ("calls", "wanted"),
    [
        ([("accepted", 0), ("recorded", 700)], (True, False)),
        ([("accepted", 0)], (False, False)),
        ([("recorded", 700)], (False, False)),
        ([("accepted", 0), ("recorded", 700), ("accepted", 90_000)], (False, False)),
        ([("accepted", 0), ("recorded", 89_000)], (False, True)),
        ([("accepted", 40_000), ("recorded", 40_700)], (False, False)),
    ],
)
def test_story_of_an_id_that_began_after_a_recorded_cancel_is_told_by_receipts(
    calls: list[tuple[str, int]], wanted: tuple[bool, bool]
) -> None:
    events = [JournalEvent("accepted", T + 90_000, DUE, None)]
    said = [CallAnswer(answer, T + after, None) for answer, after in calls]
    reading = read_story(events, [ArrivedMessage(T + 90_000, DUE)], said)
    assert (reading.after_cancel, reading.maybe_after_cancel) == wanted
