"""The demo's pure part: departures read, compressed into envelopes, announced, and judged."""

import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from duebridge.audit import Arrived, Verdict, audit
from duebridge.receipt import Receipt

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy" / "demo"))

import departures as data
from departures import Departure
from ledger import Ledger, Seen
from report import ALL, conclusion, exit_code
from timetable import (
    KAFKA_ROUTE,
    MISSING_ROUTE,
    RABBITMQ_ROUTE,
    Timetable,
    envelope_of,
    expected_fingerprint,
    news_of,
    route_of,
)

EARLY = Departure("UA", "1545", "N14228", "EWR", "IAH", 5 * 60 + 15, 2)
LATE = Departure("DL", "461", "N668DN", "LGA", "ATL", 22 * 60, 200)
CANCELLED = Departure("B6", "725", "", "JFK", "BQN", 12 * 60, None)
SOUTHWEST = Departure("WN", "15", "N775SW", "LGA", "DEN", 13 * 60, 0)
DAY = [EARLY, LATE, CANCELLED, SOUTHWEST]
TIMETABLE = Timetable.of(DAY, start_ms=1_000_000, length_s=30.0)
ROW = {
    "year": "2013",
    "month": "11",
    "day": "27",
    "dep_time": "517",
    "sched_dep_time": "515",
    "dep_delay": "2",
    "carrier": "UA",
    "flight": "1545",
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
}


def test_read_departure_row_becomes_value() -> None:
    assert data.departure_of(ROW) == EARLY


@pytest.mark.parametrize("absent", ["", "NA"])
def test_read_departure_that_never_left_has_no_delay(absent: str) -> None:
    row = {**ROW, "dep_time": absent, "dep_delay": absent, "tailnum": absent}
    assert data.departure_of(row) == replace(EARLY, tail="", delay_min=None)


def test_read_departures_of_another_day_are_left_out() -> None:
    assert list(data.departures_of([{**ROW, "day": "28"}, ROW])) == [EARLY]


def test_read_departures_of_the_day_all_have_ids_of_their_own() -> None:
    found = data.read_departures()
    assert len(found) == len({each.id for each in found}) == 1014
    assert {route_of(each) for each in found} == {KAFKA_ROUTE, RABBITMQ_ROUTE, MISSING_ROUTE}


def test_compress_day_first_boarding_is_the_start_and_last_is_its_length_later() -> None:
    assert TIMETABLE.instant_ms(EARLY.boarding_min) == 1_000_000
    assert TIMETABLE.instant_ms(LATE.boarding_min) == 1_030_000


def test_compress_day_of_one_departure_has_an_instant() -> None:
    assert Timetable.of([EARLY], 7, 30.0).instant_ms(EARLY.boarding_min) == 7


def test_tell_time_in_the_compressed_day_is_that_day_s() -> None:
    assert TIMETABLE.clock_at(1_000_000) == "04:45"
    assert TIMETABLE.clock_at(1_030_000) == "21:30"


@pytest.mark.parametrize(
    ("departure", "route"),
    [
        (EARLY, KAFKA_ROUTE),
        (CANCELLED, KAFKA_ROUTE),
        (LATE, RABBITMQ_ROUTE),
        (SOUTHWEST, MISSING_ROUTE),
    ],
)
def test_route_departure_goes_by_carrier_then_by_airport(departure: Departure, route: str) -> None:
    assert route_of(departure) == route


def test_make_envelope_is_due_half_an_hour_before_departure() -> None:
    envelope = envelope_of(EARLY, TIMETABLE)
    assert envelope.id == "UA1545-EWR-0515"
    assert (envelope.due.ms, envelope.due.relative) == (1_000_000, False)
    assert envelope.key == b"N14228"
    assert dict(envelope.headers) == {"origin": "EWR", "carrier": "UA"}
    assert msgspec.json.decode(envelope.body or b"") == {
        "call": "boarding starts",
        "flight": "UA1545",
        "from": "EWR",
        "to": "IAH",
        "departs": "05:15",
    }


def test_make_envelope_without_tail_number_has_the_flight_as_key() -> None:
    assert envelope_of(CANCELLED, TIMETABLE).key == b"B6725"


def test_make_envelope_for_rabbitmq_has_no_key() -> None:
    assert envelope_of(LATE, TIMETABLE).key is None


def test_announce_cancelled_and_long_delayed_only_and_before_they_are_due() -> None:
    news = {each.departure: each for each in news_of(DAY, TIMETABLE)}
    assert news.keys() == {CANCELLED, LATE}
    assert news[CANCELLED].due_ms is None
    assert news[LATE].due_ms == TIMETABLE.instant_ms(LATE.boarding_min + 200)
    assert all(
        each.at_ms < TIMETABLE.instant_ms(each.departure.boarding_min) for each in news.values()
    )


def test_announce_delay_below_the_limit_is_no_news() -> None:
    assert news_of([replace(LATE, delay_min=89)], TIMETABLE) == []


def accepted() -> Ledger:
    ledger = Ledger()
    for each in DAY:
        envelope = envelope_of(each, TIMETABLE)
        receipt = Receipt(envelope.id, route_of(each), envelope.due.ms, "accepted")
        ledger.note_receipt(envelope, receipt)
    ledger.note_cancel(KAFKA_ROUTE, CANCELLED.id, "cancelled")
    ledger.note_reschedule(RABBITMQ_ROUTE, LATE.id, "rescheduled", 1_036_000)
    return ledger


def seen(departure: Departure, at_ms: int) -> Seen:
    route = route_of(departure)
    print_of = expected_fingerprint(envelope_of(departure, TIMETABLE), route)
    return Seen(route, route == MISSING_ROUTE, Arrived(departure.id, at_ms, print_of))


def judged(ledger: Ledger, *arrived: Seen) -> dict[str, Verdict]:
    routes = (KAFKA_ROUTE, RABBITMQ_ROUTE, MISSING_ROUTE)
    return {ALL: audit(ledger.history(routes, arrived, {}))}


ARRIVED = (seen(EARLY, 1_000_003), seen(LATE, 1_036_004), seen(SOUTHWEST, 1_014_000))


def test_judge_all_accounted_for_exits_0() -> None:
    verdicts = judged(accepted(), *ARRIVED)
    verdict = verdicts[ALL]
    assert (verdict.accepted, verdict.delivered, verdict.cancelled, verdict.dead) == (4, 2, 1, 1)
    assert exit_code(verdicts) == 0
    assert "held" in conclusion(verdicts)


@pytest.mark.parametrize(
    ("kind", "arrived"),
    [
        ("lost", ARRIVED[1:]),
        ("early", (ARRIVED[0], seen(LATE, 1_035_999), ARRIVED[2])),
        ("after_cancel", (*ARRIVED, seen(CANCELLED, 1_012_000))),
    ],
)
def test_judge_planted_violation_exits_1_and_is_named(kind: str, arrived: tuple[Seen]) -> None:
    verdicts = judged(accepted(), *arrived)
    assert exit_code(verdicts) == 1
    assert f"{kind}: " in conclusion(verdicts)


def test_judge_loss_on_one_route_only_exits_1() -> None:
    ledger = accepted()
    verdicts = {
        route: audit(ledger.history([route], ARRIVED[1:], {}))
        for route in (KAFKA_ROUTE, RABBITMQ_ROUTE)
    }
    assert [verdict.holds for verdict in verdicts.values()] == [False, True]
    assert exit_code(verdicts) == 1


def test_note_late_cancel_excuses_the_envelope() -> None:
    ledger = accepted()
    ledger.note_cancel(KAFKA_ROUTE, EARLY.id, "in_flight")
    assert exit_code(judged(ledger, *ARRIVED)) == 0
    assert exit_code(judged(ledger, *ARRIVED[1:])) == 0


@pytest.mark.parametrize("answer", ["in_flight", "unknown", "dead"])
def test_note_refused_reschedule_keeps_the_old_due(answer: str) -> None:
    ledger = accepted()
    ledger.note_reschedule(KAFKA_ROUTE, EARLY.id, answer, 1_009_000)
    assert exit_code(judged(ledger, *ARRIVED)) == 0


def test_note_receipt_that_is_not_accepted_raises() -> None:
    envelope = envelope_of(EARLY, TIMETABLE)
    receipt = Receipt(envelope.id, KAFKA_ROUTE, envelope.due.ms, "conflict")
    with pytest.raises(RuntimeError, match="expected accepted; got conflict"):
        Ledger().note_receipt(envelope, receipt)
