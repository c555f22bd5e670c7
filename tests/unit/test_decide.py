"""What becomes of an envelope or a dead letter that was not confirmed: one table."""

from itertools import product
from typing import Any

import pytest

from duebridge.config.models import RetryPolicy
from duebridge.errors import RecordDamaged, RecordTooNew
from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.store.wire.leases import DamagedEnvelope, LeasedEnvelope
from duebridge.store.wire.record import EnvelopeContent, Flight, Record
from duebridge.store.wire.transitions import Burial, Decision, HoldClock, Release, Retry, SetAside
from duebridge.worker.decide import (
    DeliveryContext,
    RetryRules,
    decide,
    decide_damaged,
    decide_damaged_letter,
    set_aside,
)

NOW_MS = 1_800_000_000_000
POLICY = RetryPolicy(max_attempts=3, initial="1s", max="60s", jitter="none")
RULES = {
    kind: RetryRules(POLICY, hold_ms=30_000, is_letter=kind == "letter")
    for kind in ("envelope", "letter")
}
AT_ONCE = RetryRules(POLICY, hold_ms=0)

OUTCOMES = {
    "rejected": Outcome(Verdict.REJECTED, Reason.TOO_LARGE, "E", "no"),
    "failed": Outcome(Verdict.FAILED, error_class="E", error_message="no"),
    "nacked": Outcome(Verdict.FAILED, error_class="E", error_message="no", is_unsure=True),
    "missing": Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "E", "no"),
    "replicas": Outcome(Verdict.TARGET_UNAVAILABLE, error_class="E", error_message="no"),
    "appended": Outcome(Verdict.TARGET_UNAVAILABLE, Reason.INVALID, "E", "no", is_unsure=True),
    "leaderless": Outcome(Verdict.PART_UNAVAILABLE, error_class="E", error_message="no", part=1),
    "deferred": Outcome(Verdict.DEFERRED, error_class="E", error_message="no"),
    "silent": Outcome(Verdict.INDETERMINATE, error_class="E", error_message="no"),
    "away": Outcome(Verdict.UNAVAILABLE, error_class="E", error_message="no"),
}
SITUATIONS = {
    "up": DeliveryContext(NOW_MS, "targetup"),
    "held": DeliveryContext(NOW_MS, "targetup", is_held=True),
    "answered": DeliveryContext(NOW_MS, "targetup", has_answered=True),
}
FLIGHTS = {
    "fresh": Flight(attempt=1),
    "third": Flight(attempt=3, retries=2, letters=4),
    "worn": Flight(attempt=9, failures=2, retries=2, letters=4),
    "since 29s": Flight(attempt=5, retries=6, letters=4, held_since_ms=NOW_MS - 29_000),
    "since 30s": Flight(attempt=5, retries=6, letters=4, held_since_ms=NOW_MS - 30_000),
}


def leased(flight: str, **content: Any) -> LeasedEnvelope:
    record = Record(NOW_MS, 0, 0, NOW_MS - 1000, 1, b"hash-xyz", b"blob")
    return LeasedEnvelope("a", record, FLIGHTS[flight], EnvelopeContent(body=b"body", **content))


def said(decision: Decision) -> str:
    """A decision in words: what, when, the clock of hold, then what it counts as."""
    match decision:
        case Retry():
            words = f"retry {decision.delay_ms} {decision.clock}"
        case SetAside():
            assert decision.tag == "targetup"
            words = f"aside {decision.delay_ms} {decision.clock}"
        case Burial():
            words = f"bury {decision.reason.word}"
        case _:
            assert decision == Release("a")
            return "release"
    assert decision.error == "E\nno"
    counts = getattr(decision, "is_failure", False)
    return words + " counted" * counts + " unsure" * decision.is_unsure


SAME = ""
TABLE = [
    # outcome, target, flight: what becomes of an envelope, and of a dead letter
    ("rejected", "up", "fresh", "bury too_large counted", SAME),
    ("rejected", "held", "since 30s", "bury too_large counted", SAME),
    ("failed", "up", "fresh", "retry 1000 end counted", SAME),
    ("failed", "up", "third", "retry 4000 end counted", "retry 16000 end counted"),
    ("failed", "up", "worn", "bury attempts_exhausted counted", "retry 16000 end counted"),
    ("failed", "held", "since 30s", "retry 60000 end counted", "retry 16000 end counted"),
    ("nacked", "up", "fresh", "retry 1000 end counted unsure", SAME),
    ("nacked", "up", "worn", "bury attempts_exhausted counted unsure",
     "retry 16000 end counted unsure"),
    ("missing", "up", "fresh", "retry 1000 start", SAME),
    ("missing", "up", "worn", "retry 4000 start", "retry 16000 start"),
    ("missing", "up", "since 29s", "retry 1000 start", "retry 16000 start"),
    ("missing", "up", "since 30s", "bury target_missing", "retry 16000 start"),
    ("missing", "held", "fresh", "aside 30000 start", "retry 1000 start"),
    ("missing", "held", "since 29s", "aside 1000 start", "retry 1000 start"),
    ("missing", "held", "since 30s", "bury target_missing", "retry 1000 start"),
    ("replicas", "up", "fresh", "retry 1000 keep", SAME),
    ("replicas", "up", "worn", "retry 4000 keep", "retry 16000 keep"),
    ("replicas", "up", "since 30s", "retry 60000 keep", "retry 16000 keep"),
    ("replicas", "held", "fresh", "aside 30000 keep", "retry 1000 keep"),
    ("replicas", "held", "since 29s", "aside 1000 keep", "retry 1000 keep"),
    ("replicas", "held", "since 30s", "aside 10000 keep", "retry 1000 keep"),
    ("appended", "up", "worn", "retry 4000 keep unsure", "retry 16000 keep unsure"),
    ("appended", "held", "fresh", "aside 30000 keep unsure", "retry 1000 keep unsure"),
    ("leaderless", "up", "worn", "retry 4000 keep", "retry 16000 keep"),
    ("leaderless", "held", "since 30s", "aside 10000 keep", "retry 1000 keep"),
    ("deferred", "up", "worn", "retry 4000 keep", "retry 16000 keep"),
    ("deferred", "held", "since 30s", "aside 10000 keep", "retry 1000 keep"),
    ("silent", "up", "fresh", "retry 1000 end unsure", SAME),
    ("silent", "up", "worn", "retry 4000 end unsure", "retry 16000 end unsure"),
    ("silent", "held", "fresh", "aside 30000 end unsure", "retry 1000 end unsure"),
    ("silent", "held", "since 30s", "aside 10000 end unsure", "retry 1000 end unsure"),
    ("silent", "answered", "fresh", "retry 1000 end counted unsure", SAME),
    ("silent", "answered", "worn", "bury attempts_exhausted counted unsure",
     "retry 16000 end counted unsure"),
    ("away", "up", "fresh", "release", SAME),
    ("away", "held", "since 30s", "release", SAME),
    ("away", "answered", "worn", "release", SAME),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["envelope", "letter"])
@pytest.mark.parametrize(("outcome", "target", "flight", "envelope", "letter"), TABLE)
def test_decide_follows_the_table(
    outcome: str, target: str, flight: str, envelope: str, letter: str, kind: str
) -> None:
    expected = letter if kind == "letter" and letter != SAME else envelope
    decision = decide(leased(flight), OUTCOMES[outcome], RULES[kind], SITUATIONS[target])
    assert said(decision) == expected


def test_table_has_every_outcome_and_target() -> None:
    assert {row[0] for row in TABLE} == set(OUTCOMES)
    assert {each.verdict for each in OUTCOMES.values()} == set(Verdict) - {Verdict.CONFIRMED}
    assert {row[1] for row in TABLE} == set(SITUATIONS)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_decide_never_buries_for_an_outage_and_never_a_dead_letter(outcome: str) -> None:
    for flight, target in product(FLIGHTS, SITUATIONS):
        found = {
            kind: said(decide(leased(flight), OUTCOMES[outcome], rules, SITUATIONS[target]))
            for kind, rules in RULES.items()
        }
        if outcome in ("replicas", "appended", "away") or (outcome, target) == ("silent", "up"):
            assert not found["envelope"].startswith("bury"), (flight, target)
            assert "counted" not in found["envelope"], (flight, target)
        if outcome != "rejected":
            assert not found["letter"].startswith("bury"), (flight, target)
        if OUTCOMES[outcome].may_be_published:
            assert all("unsure" in each for each in found.values()), (flight, target)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("missing", "bury target_missing"),
        ("replicas", "aside 10000 keep"),
        ("silent", "aside 10000 end unsure"),
        ("failed", "retry 1000 end counted"),
    ],
)
def test_decide_without_a_hold_buries_for_a_missing_target_only(
    outcome: str, expected: str
) -> None:
    decision = decide(leased("fresh"), OUTCOMES[outcome], AT_ONCE, SITUATIONS["held"])
    assert said(decision) == expected


def test_decide_without_a_hold_lets_a_dead_letter_back_off() -> None:
    rules = AT_ONCE._replace(is_letter=True)
    decision = decide(leased("third"), OUTCOMES["missing"], rules, SITUATIONS["up"])
    assert said(decision) == "retry 16000 start"


def test_decide_obeys_the_envelopes_own_max_attempts() -> None:
    failed, up = OUTCOMES["failed"], SITUATIONS["up"]
    own = {most: leased("worn", max_attempts=most) for most in (3, 4)}
    found = [said(decide(own[most], failed, RULES["envelope"], up)) for most in own]
    assert found == ["bury attempts_exhausted counted", "retry 4000 end counted"]


@pytest.mark.parametrize(
    ("flight", "clock", "delay_ms"),
    [
        ("fresh", "start", 30_000),
        ("since 29s", "start", 1000),
        ("since 29s", "keep", 1000),
        ("fresh", "keep", 30_000),
        ("since 29s", "end", 10_000),
    ],
)
def test_set_aside_lasts_until_hold_ends_if_its_clock_runs(
    flight: str, clock: HoldClock, delay_ms: int
) -> None:
    aside = set_aside(leased(flight), RULES["envelope"], SITUATIONS["held"], clock, None)
    assert aside == SetAside(id="a", delay_ms=delay_ms, tag="targetup", clock=clock)


@pytest.mark.parametrize(
    ("error", "outcome", "live", "letter"),
    [
        (RecordDamaged("E"), "rejected", "bury", "bury"),
        (RecordDamaged("E"), "failed", "bury", "retry"),
        (RecordDamaged("E"), "missing", "bury", "retry"),
        (RecordDamaged("E"), "silent", "bury", "retry"),
        (RecordDamaged("E"), "away", "bury", "release"),
        (RecordTooNew("E"), "away", "release", "release"),
    ],
)
def test_decide_of_a_damaged_record_buries_it_but_never_a_newer_one(
    error: RecordDamaged, outcome: str, live: str, letter: str
) -> None:
    kinds: dict[type, str] = {Burial: "bury", Retry: "retry", Release: "release"}
    damaged = DamagedEnvelope("a", error, b"data")
    assert kinds[type(decide_damaged(damaged))] == live
    assert kinds[type(decide_damaged_letter(damaged, OUTCOMES[outcome]))] == letter
