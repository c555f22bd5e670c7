"""The audit of a history names every planted violation, and finds none in a clean one."""

import msgspec
import pytest

from duebridge.audit import AcceptedEnvelope, ArrivedEnvelope, Bounds, History, audit, fingerprint
from tests.support.model.histories import (
    MISPLACED,
    HistoryEvent,
    Phase,
    Subject,
    history_of,
    whole_histories,
)

CLEAN = History(
    accepted=[
        AcceptedEnvelope("a", 1000, "x"),
        AcceptedEnvelope("b", 2000, "y"),
        AcceptedEnvelope("c", 3000, "z"),
    ],
    delivered=[ArrivedEnvelope("a", 1005, "x"), ArrivedEnvelope("b", 2000, "y")],
    dead=[ArrivedEnvelope("c", 9000, "z")],
)


def changed(**fields: object) -> History:
    values = {name: getattr(CLEAN, name) for name in CLEAN.__struct_fields__}
    return History(**{**values, **fields})


def test_audit_duplicate_counts_the_copies_and_still_holds() -> None:
    verdict = audit(
        changed(
            delivered=[
                *CLEAN.delivered,
                ArrivedEnvelope("a", 1010, "x"),
                ArrivedEnvelope("a", 1011, "x"),
            ]
        )
    )
    assert verdict.duplicates == {"a": 2}
    assert verdict.duplicate_copies == 2
    assert verdict.holds


def test_audit_envelope_held_as_dead_is_not_lost() -> None:
    assert audit(changed(dead=[], held={"c": "dead"})).holds


def test_percentile_of_lateness_is_exact() -> None:
    arrived = [ArrivedEnvelope("a", 1000 + late) for late in range(100)]
    verdict = audit(History(accepted=[AcceptedEnvelope("a", 1000)], delivered=arrived))
    assert (verdict.lateness_percentile_ms(50), verdict.lateness_percentile_ms(99)) == (50, 99)
    assert audit(History(accepted=[], delivered=[])).lateness_percentile_ms(50) == 0


def test_fingerprint_leaves_out_what_the_bridge_sets_and_nothing_else() -> None:
    plain = fingerprint(b"body", None, (("n", "1"),))
    assert (
        fingerprint(b"body", None, (("n", b"1"), ("x-attempt", "3"), ("x-dlq-reason", "r")))
        == plain
    )
    for other in (
        fingerprint(b"bodY", None, (("n", "1"),)),
        fingerprint(b"body", b"", (("n", "1"),)),
        fingerprint(None, b"body", (("n", "1"),)),
        fingerprint(b"body", None, (("n", "2"),)),
        fingerprint(b"body", None, ()),
    ):
        assert other != plain


DUE_MS = 5000


def event(subject: Subject, phase: Phase, id: str, **fields: object) -> HistoryEvent:
    return HistoryEvent(1000, subject, phase, id, **fields)  # type: ignore[arg-type]


def scheduled(id: str, answer: str = "accepted") -> list[HistoryEvent]:
    asked = event(Subject.SCHEDULE, Phase.INVOKE, id, fingerprint=f"print of {id}")
    return [asked, event(Subject.SCHEDULE, Phase.OK, id, due_at_ms=DUE_MS, answer=answer)]


def came(
    id: str,
    subject: Subject = Subject.TARGET,
    at_ms: int = DUE_MS,
    print_of: str = "",
    **more: object,
) -> HistoryEvent:
    known = {"fingerprint": print_of or f"print of {id}", **more}
    return HistoryEvent(at_ms, subject, Phase.OK, id, **known)  # type: ignore[arg-type]


def asked(subject: Subject, id: str, answer: str, due_at_ms: int = 0) -> list[HistoryEvent]:
    call = event(subject, Phase.INVOKE, id, due_at_ms=due_at_ms)
    return [call, msgspec.structs.replace(call, phase=Phase.OK, answer=answer)]


EVENTS = [
    *scheduled("a"),
    *scheduled("b"),
    *scheduled("c"),
    *scheduled("d"),
    *asked(Subject.CANCEL, "c", "cancelled"),
    *asked(Subject.RESCHEDULE, "d", "rescheduled", 9000),
    event(Subject.FAULT, Phase.OK, "the store killed", answer="the worker missed it"),
    came("a"),
    came("b", Subject.DEAD_LETTER),
    came("d", at_ms=9000),
]
FAILED = [event(Subject.SCHEDULE, each, "x") for each in (Phase.INVOKE, Phase.FAIL)]
UNANSWERED = [scheduled("x")[0], event(Subject.SCHEDULE, Phase.INFO, "x")]
ONE_DEAD = Bounds(dead=1)


def without(id: str, subject: Subject) -> list[HistoryEvent]:
    return [each for each in EVENTS if (each.id, each.subject) != (id, subject)]


def test_audit_of_a_clean_history_finds_nothing() -> None:
    verdict = audit(history_of(EVENTS))
    assert verdict.violations(ONE_DEAD) == {}
    counts = (verdict.accepted, verdict.delivered, verdict.dead, verdict.cancelled)
    assert counts == (4, 2, 1, 1)


@pytest.mark.parametrize(
    ("kind", "id", "history"),
    [
        ("lost", "a", without("a", Subject.TARGET)),
        ("lost", "b", without("b", Subject.DEAD_LETTER)),
        ("unexpected", "x", [*EVENTS, came("x")]),
        ("unexpected", "x", [*EVENTS, came("x", Subject.DEAD_LETTER)]),
        ("unexpected", "x", [*EVENTS, *FAILED, came("x")]),
        ("early", "a", [*without("a", Subject.TARGET), came("a", at_ms=DUE_MS - 1)]),
        ("early", "d", [*without("d", Subject.TARGET), came("d", at_ms=8999)]),
        ("after_cancel", "c", [*EVENTS, came("c")]),
        ("after_cancel", "c", [*EVENTS, came("c", Subject.DEAD_LETTER)]),
        ("duplicates", "a", [*EVENTS, came("a")]),
        ("in_two_places", "a", [*EVENTS, came("a", Subject.DEAD_LETTER)]),
        ("in_two_places", "a",
         [*EVENTS, event(Subject.STORE, Phase.OK, "a", answer="dead")]),
        ("corrupt", "a", [*without("a", Subject.TARGET), came("a", print_of="another")]),
        ("corrupt", "b",
         [*without("b", Subject.DEAD_LETTER), came("b", Subject.DEAD_LETTER, 1, "other")]),
        ("corrupt", "x", [*EVENTS, *UNANSWERED, came("x", print_of="o")]),
        ("stuck", "a",
         [*without("a", Subject.TARGET), event(Subject.STORE, Phase.OK, "a", answer="unack")]),
        ("dead", "a", [*without("a", Subject.TARGET), came("a", Subject.DEAD_LETTER)]),
        ("misplaced", "a", [*without("a", Subject.TARGET), came("a", answer=MISPLACED)]),
        ("misplaced", "b", [*EVENTS, came("b", Subject.DEAD_LETTER, answer=MISPLACED)]),
        ("misdated", "a", [*without("a", Subject.TARGET), came("a", due_at_ms=DUE_MS + 1)]),
        ("misdated", "b", [*EVENTS, came("b", Subject.DEAD_LETTER, due_at_ms=DUE_MS - 1)]),
    ],
)  # fmt: skip
def test_audit_of_a_planted_violation_names_it(
    kind: str, id: str, history: list[HistoryEvent]
) -> None:
    found = audit(history_of(history)).violations(ONE_DEAD)
    assert id in found[kind]
    assert any(
        line.subject is not Subject.FAULT for line in whole_histories(history, found[kind])[id]
    )


def test_audit_within_its_bounds_holds() -> None:
    history = [*EVENTS, came("a"), came("a", Subject.DEAD_LETTER)]
    bounds = Bounds(duplicates=1, in_two_places=1, dead=2)
    assert audit(history_of(history)).violations(bounds) == {}


@pytest.mark.parametrize("end", [[], [event(Subject.SCHEDULE, Phase.INFO, "x")]])
def test_history_of_a_schedule_without_an_answer_may_arrive_and_need_not(
    end: list[HistoryEvent],
) -> None:
    asked_for = [*EVENTS, event(Subject.SCHEDULE, Phase.INVOKE, "x"), *end]
    assert audit(history_of(asked_for)).violations(ONE_DEAD) == {}
    arrived = audit(history_of([*asked_for, came("x")]))
    assert arrived.violations(ONE_DEAD) == {}
    assert arrived.recovered == ["x"]


@pytest.mark.parametrize("header", [DUE_MS, 9000])
def test_audit_of_a_header_with_any_due_that_was_given_finds_nothing(header: int) -> None:
    history = [*without("d", Subject.TARGET), came("d", at_ms=9000, due_at_ms=header)]
    assert audit(history_of(history)).violations(ONE_DEAD) == {}


@pytest.mark.parametrize("end", [[], [event(Subject.CANCEL, Phase.INFO, "a")]])
def test_history_of_a_cancel_without_an_answer_excuses_both_ways(end: list[HistoryEvent]) -> None:
    asked_for = [event(Subject.CANCEL, Phase.INVOKE, "a"), *end]
    assert audit(history_of([*EVENTS, *asked_for])).violations(ONE_DEAD) == {}
    assert audit(history_of([*without("a", Subject.TARGET), *asked_for])).violations(ONE_DEAD) == {}


def test_history_of_a_cancel_that_came_too_late_excuses_and_a_refused_one_does_not() -> None:
    gone = without("a", Subject.TARGET)
    assert audit(history_of([*gone, *asked(Subject.CANCEL, "a", "in_flight")])).lost == []
    assert audit(history_of([*gone, *asked(Subject.CANCEL, "a", "unknown")])).lost == ["a"]


@pytest.mark.parametrize(
    ("end", "due_at_ms"),
    [
        ([], 2000),
        ([event(Subject.RESCHEDULE, Phase.INFO, "a", due_at_ms=2000)], 2000),
        ([event(Subject.RESCHEDULE, Phase.OK, "a", due_at_ms=2000, answer="rescheduled")], 2000),
        ([event(Subject.RESCHEDULE, Phase.OK, "a", due_at_ms=2000, answer="in_flight")], DUE_MS),
    ],
)
def test_history_of_a_reschedule_knows_the_least_due(
    end: list[HistoryEvent], due_at_ms: int
) -> None:
    call = event(Subject.RESCHEDULE, Phase.INVOKE, "a", due_at_ms=2000)
    history: History = history_of([*scheduled("a"), call, *end])
    assert [each.due_at_ms for each in history.accepted] == [due_at_ms]


def test_fingerprint_tells_properties_apart() -> None:
    plain = fingerprint(b"body", None, ())
    assert fingerprint(b"body", None, (), {"type": None}) == plain
    given = fingerprint(b"body", None, (), {"type": "t", "priority": 3})
    assert given == fingerprint(b"body", None, (), {"priority": 3, "type": "t"})
    assert given != plain
    assert given != fingerprint(b"body", None, (), {"type": "t", "priority": 4})
