"""The checker checked: a history with each kind of violation planted is caught, a clean one not."""

import pytest

from duebridge.audit import Accepted, Arrived, History, audit, fingerprint

CLEAN = History(
    accepted=[Accepted("a", 1000, "x"), Accepted("b", 2000, "y"), Accepted("c", 3000, "z")],
    delivered=[Arrived("a", 1005, "x"), Arrived("b", 2000, "y")],
    dead=[Arrived("c", 9000, "z")],
)


def changed(**fields: object) -> History:
    values = {name: getattr(CLEAN, name) for name in CLEAN.__struct_fields__}
    return History(**{**values, **fields})


def test_audit_clean_history_holds() -> None:
    verdict = audit(CLEAN)
    assert verdict.holds
    assert (verdict.accepted, verdict.delivered, verdict.dead) == (3, 2, 1)
    assert verdict.lateness_ms == [5, 0]


@pytest.mark.parametrize(
    ("kind", "history"),
    [
        ("lost", changed(dead=[])),
        ("early", changed(delivered=[Arrived("a", 999, "x"), Arrived("b", 2000, "y")])),
        ("after_cancel", changed(cancelled=frozenset("a"))),
        ("unexpected", changed(dead=[*CLEAN.dead, Arrived("stranger", 1, "")])),
        ("corrupt", changed(delivered=[Arrived("a", 1005, "other"), Arrived("b", 2000, "y")])),
        ("stuck", changed(dead=[], held={"c": "unack"})),
    ],
)
def test_audit_planted_violation_is_named(kind: str, history: History) -> None:
    verdict = audit(history)
    assert not verdict.holds
    assert getattr(verdict, kind)


def test_audit_duplicate_counts_the_copies_and_still_holds() -> None:
    verdict = audit(
        changed(delivered=[*CLEAN.delivered, Arrived("a", 1010, "x"), Arrived("a", 1011, "x")])
    )
    assert verdict.duplicates == {"a": 2}
    assert verdict.duplicate_copies == 2
    assert verdict.holds


def test_audit_envelope_held_as_dead_is_not_lost() -> None:
    assert audit(changed(dead=[], held={"c": "dead"})).holds


def test_audit_cancelled_and_excused_are_not_lost() -> None:
    only_b = [Arrived("b", 2000, "y")]
    assert audit(changed(delivered=only_b, cancelled=frozenset("a"))).holds
    assert audit(changed(delivered=only_b, excused=frozenset("a"))).holds


def test_audit_attempted_may_arrive_and_need_not() -> None:
    stranger = Arrived("s", 5, "")
    assert audit(changed(attempted=frozenset("s"))).holds
    assert audit(changed(delivered=[*CLEAN.delivered, stranger], attempted=frozenset("s"))).holds


def test_audit_id_in_both_targets_is_reported() -> None:
    assert audit(changed(dead=[*CLEAN.dead, Arrived("a", 9, "x")])).in_two_places == ["a"]


def test_percentile_of_lateness_is_exact() -> None:
    arrived = [Arrived("a", 1000 + late) for late in range(100)]
    verdict = audit(History(accepted=[Accepted("a", 1000)], delivered=arrived))
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
