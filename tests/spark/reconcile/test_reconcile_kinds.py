"""One of each kind, planted in every kind of life: all are named, and nothing else is."""

import itertools

import pytest
from pyspark.sql import SparkSession

from duebridge_connectors.spark.jobs.reconcile import reconcile_evidence
from duebridge_connectors.spark.transforms.id_histories import (
    ArrivedMessage,
    CallAnswer,
    JournalEvent,
    read_story,
)
from duebridge_connectors.spark.transforms.verdict import KINDS
from tests.spark.reconcile.evidence import Came, Fact, Held, Plot, Said, T, Told, period

DUE = T + 100_000
LATE_MS = 5_000


def plain() -> tuple[list[Fact], int]:
    return [Told("accepted", T, DUE)], T


def replaced() -> tuple[list[Fact], int]:
    return [Told("accepted", T, DUE - 50), Told("replaced", T + 10, DUE)], T + 10


def moved() -> tuple[list[Fact], int]:
    return [Told("accepted", T, DUE - 50), Told("rescheduled", T + 10, DUE)], T


def cold() -> tuple[list[Fact], int]:
    gone = [Told("accepted", T, DUE), Told("demoted", T + 10, DUE)]
    return [*gone, Told("accepted", T + 500, DUE)], T + 500


def cold_and_moved() -> tuple[list[Fact], int]:
    """Rescheduled while it was cold, which the journal does not tell."""
    gone = [Told("accepted", T, DUE + 99), Told("demoted", T + 10, DUE + 99)]
    return [*gone, Told("accepted", T + 500, DUE)], T + 500


LIVES = (plain, replaced, moved, cold, cold_and_moved)
ACKED = Told("delivered", DUE + 20, DUE, 1)


def planted(kind: str, begun: int) -> list[Fact]:
    """What makes a story with this begin wrong in one way."""
    came = Came(DUE + 10, begun, DUE)
    return {
        "lost": [ACKED],
        "early": [came._replace(at=DUE - 200), ACKED],
        "after_cancel": [Told("cancelled", DUE - 5_000, DUE, 0), came],
        "unexpected": [came],
        "corrupt": [Said("accepted", begun, DUE, "one"), came._replace(print_of="other"), ACKED],
        "stuck": [Held("ready", DUE, begun)],
        "misplaced": [came._replace(place="stray"), ACKED],
        "misdated": [came._replace(header=DUE + 7), ACKED],
        "duplicates": [came, came, ACKED],
        "in_two_places": [came, came._replace(is_dead=True), ACKED],
        "late": [came._replace(at=DUE + LATE_MS + 1), ACKED],
    }[kind]


def test_reconcile_of_each_kind_in_each_life_names_all_and_nothing_else(
    spark: SparkSession,
) -> None:
    plot = Plot()
    for life, kind in itertools.product(LIVES, KINDS):
        story, begun = life()
        before = [] if kind == "unexpected" else story
        plot.tell(f"{kind} {life.__name__}", *before, *planted(kind, begun))
    for number, life in enumerate(LIVES):
        story, begun = life()
        plot.tell(f"good {number}", *story, Came(DUE + 10, begun, DUE), ACKED)
        plot.tell(f"held {number}", *story, Held("pending", DUE * 2, begun))
        plot.tell(f"dead {number}", *story, Came(DUE + 99, begun, DUE, is_dead=True))
        plot.tell(f"called off {number}", *story, Told("cancelled", DUE - 1, DUE, 0))
    window = period(stuck_before_ms=DUE + 60_000, late_ms=LATE_MS)
    found = reconcile_evidence(plot.evidence(spark), window)
    names = {kind: sorted(f"r/{kind} {life.__name__}" for life in LIVES) for kind in KINDS}
    assert found.examples == names
    assert (found.verdict, found.doubtful, found.missing) == ("broken", {}, [])
    (route,) = found.routes
    assert {getattr(route, kind) for kind in KINDS} == {len(LIVES)}


# What came back from the cold tier past its end: findings F1, F2, A12, A13.
COLD = [Told("accepted", T, DUE), Told("demoted", T + 10, DUE)]
AGAIN = Told("accepted", T + 900, DUE)
BACK: dict[str, list[Told]] = {
    "two hydrates": [
        *COLD,
        Told("accepted", T + 500, DUE - 70),
        Told("cancelled", T + 700, DUE - 70, 0),
        AGAIN._replace(due=DUE - 70),
    ],
    "two hydrates, of the file's due": [
        *COLD,
        Told("accepted", T + 500, DUE - 70),
        Told("cancelled", T + 700, DUE - 70, 0),
        AGAIN,
    ],
    "one hydrate": [
        *COLD,
        Told("accepted", T + 500, DUE + 30),
        Told("cancelled", T + 700, DUE + 30, 0),
        AGAIN,
    ],
    "same due": [
        *COLD,
        Told("accepted", T + 500, DUE),
        Told("cancelled", T + 700, DUE, 0),
        AGAIN,
    ],
    "scheduled over": [
        *COLD,
        Told("accepted", T + 500, T + 600),
        Told("delivered", T + 800, T + 600, 1),
        AGAIN,
    ],
}
WELL: dict[str, list[Told]] = {
    "reopened": [
        Told("accepted", T, DUE),
        Told("cancelled", T + 700, DUE, 0),
        AGAIN,
    ],
    "reopened for another instant": [
        *COLD,
        Told("accepted", T + 500, DUE),
        Told("cancelled", T + 700, DUE, 0),
        AGAIN._replace(due=DUE + 1),
    ],
    "its cold copy cancelled behind it": [
        *COLD,
        AGAIN._replace(due=DUE - 9_000),
        Told("delivered", DUE - 8_990, DUE - 9_000, 1),
        Told("cancelled", DUE - 5_000, DUE, 0),
    ],
    "twice cold": [*COLD, Told("accepted", T + 500, DUE), Told("demoted", T + 600, DUE), AGAIN],
}


def story_of(told: list[Told], *, is_told: bool = False) -> list[Fact]:
    last = max((of for of in told if of.kind == "accepted"), key=lambda of: of.at or 0)
    due = last.due or 0
    facts: list[Fact] = [*told, Came(due + 10, last.at, due), Told("delivered", due + 20, due, 1)]
    begun = {of.due: of.at for of in told if of.kind == "accepted"}
    for of in told:
        if of.kind == "delivered" and begun[of.due] != last.at:
            facts.append(Came((of.at or 0) - 10, begun[of.due], of.due))
    calls = [Said("accepted", T, DUE), Said("recorded", T + 700)] if is_told else []
    return [*facts, *calls]


@pytest.mark.long
def test_reconcile_of_what_came_back_past_its_end_is_in_doubt_without_receipts(
    spark: SparkSession,
) -> None:
    plot = Plot()
    for name, told in (BACK | WELL).items():
        plot.tell(name, *story_of(told))
    found = reconcile_evidence(plot.evidence(spark), period())
    assert (found.verdict, found.examples) == ("undetermined", {})
    assert found.doubtful == {"after_cancel": sorted(f"r/{name}" for name in BACK)}
    assert "--receipts" in found.missing[0]


@pytest.mark.long
def test_reconcile_of_what_came_back_past_its_cancel_is_named_with_receipts(
    spark: SparkSession,
) -> None:
    plot = Plot()
    for name, told in BACK.items():
        plot.tell(name, *story_of(told, is_told=True))
    plot.tell("A12", *story_of([*COLD, AGAIN._replace(at=T + 90_000)], is_told=True))
    asked = Said("accepted", T + 900, DUE)
    plot.tell("reopened", *story_of(BACK["same due"], is_told=True), asked)
    found = reconcile_evidence(plot.evidence(spark), period())
    names = {f"r/{name}" for name in [*BACK, "A12"]}
    assert (found.verdict, found.routes[0].after_cancel) == ("broken", len(names))
    assert set(found.examples["after_cancel"]) <= names
    assert list(found.examples) == ["after_cancel"]


@pytest.mark.parametrize(
    ("calls", "wanted"),
    [
        ([], (False, True)),
        ([CallAnswer("cancelled", T + 700, None)], (True, False)),
        (
            [CallAnswer("cancelled", T + 700, None), CallAnswer("accepted", T + 900, DUE)],
            (False, False),
        ),
        ([CallAnswer("accepted", T, DUE)], (False, True)),
    ],
)
def test_story_of_what_came_back_is_certain_by_the_last_receipt(
    calls: list[CallAnswer], wanted: tuple[bool, bool]
) -> None:
    events = [JournalEvent(of.kind, of.at or 0, of.due, of.attempt) for of in BACK["one hydrate"]]
    reading = read_story(events, [ArrivedMessage(T + 900, DUE)], calls)
    assert (reading.after_cancel, reading.maybe_after_cancel) == wanted


@pytest.mark.parametrize(
    ("answer", "wanted"), [(None, False), ("in_flight", False), ("cancelled", True)]
)
def test_story_of_a_cancel_after_an_attempt_is_certain_by_its_receipt(
    answer: str | None, wanted: bool
) -> None:
    events = [JournalEvent("accepted", T, DUE, None), JournalEvent("cancelled", T + 9, DUE, 2)]
    calls = [CallAnswer(answer, T + 9, None)] if answer else []
    assert read_story(events, [ArrivedMessage(T, DUE)], calls).after_cancel == wanted


@pytest.mark.parametrize(
    ("after_ms", "wanted"), [(-1, (False, False)), (60_000, (False, True)), (60_001, (True, False))]
)
def test_story_of_a_cold_row_that_is_back_after_its_cancel_allows_for_the_callers_clock(
    after_ms: int, wanted: tuple[bool, bool]
) -> None:
    back = AGAIN._replace(at=T + 90_000)
    events = [JournalEvent(of.kind, of.at or 0, of.due, of.attempt) for of in [*COLD, back]]
    calls = [CallAnswer("accepted", T, DUE), CallAnswer("recorded", T + 90_000 - after_ms, None)]
    reading = read_story(events, [ArrivedMessage(T + 90_000, DUE)], calls)
    assert (reading.after_cancel, reading.maybe_after_cancel) == wanted


def test_story_of_many_due_instants_takes_any_of_them_in_the_header() -> None:
    events = [JournalEvent("accepted", T, DUE, None)]
    events += [JournalEvent("rescheduled", T + n, DUE + n, None) for n in (5, 3, 9)]

    def is_misdated(header: int) -> bool:
        return read_story(events, [ArrivedMessage(T, header)], []).misdated

    assert [n for n in range(10) if not is_misdated(DUE + n)] == [0, 3, 5, 9]


def _gap(at: int, lost: int) -> Told:
    return Told("gap", None, at, lost=lost)


def cut(plot: Plot) -> None:
    """The head of a journal that its cap cut at DUE."""
    plot.tell("", _gap(0, 50), route="cut")
    plot.tell("first", Told("accepted", DUE, DUE + 9), Came(DUE + 9, DUE, DUE + 9), route="cut")
    plot.tell("before", Came(DUE, T, T + 7), route="cut")
    plot.tell("nobody knows when", Came(DUE), route="cut")


def gap(plot: Plot) -> None:
    """Entries that a table missed, between T + 10 and T + 90."""
    plot.tell("lost before", Told("accepted", T + 10, DUE), route="gap")
    plot.tell("", _gap(T + 50, 3), route="gap")
    plot.tell("well", Told("accepted", T + 90, DUE), Came(DUE, T + 90, DUE), route="gap")
    plot.tell("within", Came(DUE, T + 50, DUE), route="gap")
    moved = Came(DUE - 9, T + 10, DUE - 9)
    plot.tell("moved within", Told("accepted", T + 10, DUE), moved, route="gap")


def begun_late(plot: Plot) -> None:
    """A table that began behind a renewal, which skips numbers."""
    plot.begin("late", 2**44)
    plot.tell("first", Told("accepted", DUE, DUE + 9), Came(DUE + 9, DUE, DUE + 9), route="late")
    plot.tell("before", Came(DUE, T, T + 7), route="late")


def slow(plot: Plot) -> None:
    """A broker whose clock is 2 s behind; one was delivered at the second attempt."""
    for number, due in enumerate(range(DUE, DUE + 20)):
        plot.tell(f"{number:02}", Told("accepted", T, due), route="slow")
        acked = due + 30 + number + 5_000 * (number == 3)
        came = Came(acked - 10 - 2_000, T, due)
        plot.tell(f"{number:02}", came, Told("delivered", acked, due, 1), route="slow")


def slow_alike(plot: Plot) -> None:
    """The same, and no word of the store about the confirms."""
    for number in range(20):
        came = Came(DUE - 2_000 + number, T, DUE)
        plot.tell(f"{number:02}", Said("accepted", T, DUE), came, route="alike")


def two_lives(plot: Plot) -> None:
    """The second one was cancelled: its message is one too many."""
    lives = [Told("accepted", T, T + 50), Told("accepted", T + 900, DUE)]
    done = Told("delivered", T + 60, T + 50, 1)
    cancel = Told("cancelled", T + 950, DUE, 0)
    first, second = Came(T + 55, T, T + 50), Came(DUE, T + 900, DUE)
    plot.tell("well", *lives, done, cancel, first, route="lives")
    plot.tell("bad", *lives, done, cancel, first, second, route="lives")


def complete_but_for_a_gap(plot: Plot, begun: int) -> None:
    plot.tell("", _gap(0, 50), route="whole")
    for name, at in (("old", begun), ("new", begun + 50)):
        plot.tell(name, Told("accepted", at, DUE), Came(DUE, at, DUE), route="whole")


@pytest.mark.long
def test_reconcile_of_what_something_missing_explains_is_undetermined(spark: SparkSession) -> None:
    plot = Plot()
    for plant in (cut, gap, begun_late, slow, slow_alike):
        plant(plot)
    found = reconcile_evidence(plot.evidence(spark), period())
    assert (found.verdict, found.examples) == ("undetermined", {})
    counts = {each.route: each.undetermined for each in found.routes}
    assert counts == {"cut": 2, "gap": 3, "late": 1, "slow": 19, "alike": 20}
    assert found.doubtful["unexpected"] == [
        *("cut/before", "cut/nobody knows when", "gap/within", "late/before")
    ]
    assert found.doubtful["lost"] == ["gap/lost before"]
    assert found.doubtful["misdated"] == ["gap/moved within"]
    told = " ".join(found.missing)
    for word in ("50 entries of the journal of cut/0 before", "3 entries", "--since", "2.0 s"):
        assert word in told
    assert "; entries of the journal of late/0 before" in f"; {'; '.join(found.missing)}"
    assert "--clock-skew 3s" in told


@pytest.mark.long
def test_reconcile_with_evidence_beside_what_is_missing_is_broken(spark: SparkSession) -> None:
    plot = Plot()
    for plant in (cut, gap, slow, two_lives):
        plant(plot)
    plot.tell("behind", Told("accepted", DUE + 1, DUE + 9), route="cut")
    plot.tell("stranger", Came(DUE, T + 100, DUE), route="gap")
    plot.tell("too early", Told("accepted", T, DUE), Came(DUE - 50_000, T, DUE), route="slow")
    found = reconcile_evidence(plot.evidence(spark), period())
    assert (found.verdict, found.examples) == (
        "broken",
        {
            "lost": ["cut/behind"],
            "unexpected": ["gap/stranger"],
            "early": ["slow/too early"],
            "after_cancel": ["lives/bad"],
        },
    )


@pytest.mark.long
def test_reconcile_with_the_clock_skew_told_holds(spark: SparkSession) -> None:
    plot = Plot()
    slow(plot)
    slow_alike(plot)
    found = reconcile_evidence(plot.evidence(spark), period(skew_ms=2_500))
    assert (found.verdict, found.examples, found.missing) == ("holds", {}, [])


@pytest.mark.long
def test_reconcile_of_a_journal_with_a_gap_is_undetermined_though_all_came(
    spark: SparkSession,
) -> None:
    plot = Plot()
    complete_but_for_a_gap(plot, T)
    assert reconcile_evidence(plot.evidence(spark), period()).verdict == "undetermined"


@pytest.mark.long
def test_reconcile_of_a_period_judges_every_source_by_it(spark: SparkSession) -> None:
    since, until, days = T, T + 86_400_000, 86_400_000
    plot = Plot()
    old, new = T - days, T + 5
    plot.tell("receipt before", Said("accepted", old, DUE))
    plot.tell("receipt behind", Said("accepted", until + 1, DUE))
    plot.tell("receipt without its instant", Said("accepted", None, DUE))
    plot.tell("on the edge", Said("accepted", T + 1, DUE), Told("accepted", T - 1, DUE))
    plot.tell("message before", Came(DUE, old, DUE))
    plot.tell("export before", Came(old + 5))
    plot.tell("export of before", Told("accepted", old, DUE), Came(DUE))
    plot.tell("replaced since", Told("accepted", old, DUE), Told("replaced", new, DUE))
    plot.tell("replaced since", Came(DUE, new, DUE))
    plot.tell("replaced behind", Told("accepted", new, DUE), Told("replaced", until + 1, DUE))
    plot.tell("held before", Held("ready", 0, old))
    plot.tell("cold before", Told("accepted", old, DUE), Told("demoted", old + 1, DUE))
    plot.tell("cold before", Told("accepted", new, DUE), Came(DUE, new, DUE))
    plot.tell("cold until", Told("accepted", new, DUE), Told("demoted", new + 1, DUE))
    plot.tell("cold until", Told("accepted", until + 9, DUE), Came(until + 99, until + 9, DUE))
    complete_but_for_a_gap(plot, since - 10)
    found = reconcile_evidence(plot.evidence(spark), period(since, until))
    assert (found.verdict, found.examples, found.doubtful) == ("holds", {}, {})
    plot.tell("lost receipt", Said("accepted", new, DUE))
    plot.tell("lost", Told("accepted", new, DUE))
    found = reconcile_evidence(plot.evidence(spark), period(since, until))
    assert found.examples == {"lost": ["r/lost", "r/lost receipt"]}
