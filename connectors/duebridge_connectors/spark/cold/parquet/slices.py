"""Names of cold files, and of slices of them.

    batch=B/due=2027-01-05T13_2027-03-31T09/….parquet       rows due in these hours (UTC)
    batch=B/due_date=2027-01-05/due_hour=13/….parquet       up to version 0.2: of one hour
    FILE#1799154000000-1799157600000                        a slice: what is due from, and before

A slice is named as its file where it is all of it; a bound of 0 bounds nothing.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from duebridge.config.models import HOUR_MS

_HOUR = "%Y-%m-%dT%H"


class DueRange(NamedTuple):
    """Instants from `from_ms` to before `until_ms`."""

    from_ms: int
    until_ms: int


class FileSlice(NamedTuple):
    """The rows of a file that are due from an instant to before another."""

    file: str
    from_ms: int = 0
    until_ms: int = 0

    def __str__(self) -> str:
        is_whole = not (self.from_ms or self.until_ms)
        return self.file if is_whole else f"{self.file}#{self.from_ms}-{self.until_ms}"


def read_slice(name: str) -> FileSlice:
    """Return the slice of a name."""
    file, sign, bounds = name.partition("#")
    if not sign:
        return FileSlice(file)
    from_ms, _, until_ms = bounds.partition("-")
    return FileSlice(file, int(from_ms), int(until_ms))


def range_folder(first_ms: int, last_ms: int) -> str:
    """Return the folder, below a batch's, of a file whose rows are due from first to last."""
    first, last = (
        datetime.fromtimestamp(at_ms // HOUR_MS * HOUR_MS / 1000, UTC)
        for at_ms in (first_ms, last_ms)
    )
    return f"due={first:{_HOUR}}_{last:{_HOUR}}"


def range_of(name: str) -> DueRange:
    """Return the whole hours in which the rows of a file or slice are due."""
    file, from_ms, until_ms = read_slice(name)
    parts = dict(part.split("=", 1) for part in file.split("/") if "=" in part)
    if "due" in parts:
        first, _, last = parts["due"].partition("_")
    else:
        first = last = f"{parts['due_date']}T{int(parts['due_hour']):02}"
    begin_ms, end_ms = _hour_ms(first), _hour_ms(last) + HOUR_MS
    return DueRange(max(begin_ms, from_ms), min(end_ms, until_ms or end_ms))


def _hour_ms(text: str) -> int:
    return int(datetime.fromisoformat(f"{text}:00:00+00:00").timestamp()) * 1000


def up_to_hour(at_ms: int) -> int:
    """Return an instant rounded up to a full hour."""
    return -(-at_ms // HOUR_MS) * HOUR_MS
