"""The day as duebridge gets it: departures become envelopes, and what happened to them news.

Pure: the same departures and the same start give the same envelopes.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from duebridge.audit import fingerprint
from duebridge.envelope import Envelope

from departures import Departure, clock

KAFKA_ROUTE, RABBITMQ_ROUTE, MISSING_ROUTE = "newark-jfk", "laguardia", "southwest"
ROUTES = (KAFKA_ROUTE, RABBITMQ_ROUTE, MISSING_ROUTE)
TARGETS = {KAFKA_ROUTE: "Kafka", RABBITMQ_ROUTE: "RabbitMQ", MISSING_ROUTE: "no topic"}
MISSING_CARRIER = "WN"  # Southwest: nobody made a topic for it
LONG_DELAY_MIN = 90
NOTICE_MIN = 120  # how long before boarding a cancellation or a long delay is announced
CONTENT_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Timetable:
    """Minutes of that day as instants of today: the first boarding at `start_ms`, all in `ms`."""

    start_ms: int
    first_min: int
    ms_per_minute: float

    @classmethod
    def of(cls, departures: Iterable[Departure], start_ms: int, length_s: float) -> Self:
        """Return the timetable that has the planned boardings of a day take `length_s`."""
        minutes = [each.boarding_min for each in departures]
        span = max(1, max(minutes) - min(minutes))
        return cls(start_ms, min(minutes), length_s * 1000 / span)

    def instant_ms(self, minute: int) -> int:
        """Return a minute of that day as epoch ms."""
        return self.start_ms + round((minute - self.first_min) * self.ms_per_minute)

    def clock_at(self, now_ms: float) -> str:
        """Return what that day's clocks show now."""
        return clock(max(0, self.first_min + (now_ms - self.start_ms) / self.ms_per_minute))


@dataclass(frozen=True, slots=True)
class News:
    """What becomes known of a departure at an instant: a new due instant, or None: cancelled."""

    at_ms: int
    departure: Departure
    due_ms: int | None


def route_of(departure: Departure) -> str:
    """Return the route of a departure: by carrier, else by airport."""
    if departure.carrier == MISSING_CARRIER:
        return MISSING_ROUTE
    return RABBITMQ_ROUTE if departure.origin == "LGA" else KAFKA_ROUTE


def envelope_of(departure: Departure, timetable: Timetable) -> Envelope:
    """Return the call "boarding starts", due when boarding is planned to start."""
    body = {
        "call": "boarding starts",
        "flight": departure.carrier + departure.flight,
        "from": departure.origin,
        "to": departure.destination,
        "departs": clock(departure.scheduled_min),
    }
    return Envelope.new(
        json.dumps(body).encode(),
        at=timetable.instant_ms(departure.boarding_min),
        id=departure.id,
        key=key_of(departure),
        headers={"origin": departure.origin, "carrier": departure.carrier},
        content_type=CONTENT_TYPE,
    )


def key_of(departure: Departure) -> bytes | None:
    """Return the aircraft, so that its calls stay in one partition; AMQP knows no keys."""
    if route_of(departure) == RABBITMQ_ROUTE:
        return None
    return (departure.tail or departure.carrier + departure.flight).encode()


def expected_fingerprint(envelope: Envelope, route: str) -> str:
    """Return the fingerprint of what must arrive: on Kafka the content type is a header."""
    headers = envelope.headers
    if route != RABBITMQ_ROUTE:
        headers = (*headers, ("content-type", CONTENT_TYPE))
    return fingerprint(envelope.body, envelope.key, headers)


def news_of(departures: Iterable[Departure], timetable: Timetable) -> list[News]:
    """Return the cancellations and long delays of the day, each some time before it is due."""
    news = [
        News(
            timetable.instant_ms(each.boarding_min - NOTICE_MIN), each, new_due_ms(each, timetable)
        )
        for each in departures
        if is_cancelled(each) or is_long_delayed(each)
    ]
    return sorted(news, key=lambda each: each.at_ms)


def new_due_ms(departure: Departure, timetable: Timetable) -> int | None:
    """Return when boarding really started; None where it never did."""
    if is_cancelled(departure):
        return None
    return timetable.instant_ms(departure.real_boarding_min)


def is_cancelled(departure: Departure) -> bool:
    """Whether it never left."""
    return departure.delay_min is None


def is_long_delayed(departure: Departure) -> bool:
    """Whether it left so late that boarding is called anew."""
    return departure.delay_min is not None and departure.delay_min >= LONG_DELAY_MIN
