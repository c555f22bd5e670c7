"""The figures of the report, and how numbers and durations are shown."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

Row: TypeAlias = Mapping[str, Any]
TABLES = ("hours", "days", "reasons", "gaps", "forecast")


class ReportFigures(NamedTuple):
    """The figures of a report: rows of `transforms.figures`; `duplicates` is None if unknown."""

    made_at: datetime
    hours: Sequence[Row]
    days: Sequence[Row]
    reasons: Sequence[Row]
    gaps: Sequence[Row]
    forecast: Sequence[Row]
    duplicates: Mapping[str, int] | None = None

    def of(self, route: str) -> "ReportFigures":
        """Return the figures of one route."""
        mine: dict[str, Any] = {
            name: [row for row in getattr(self, name) if row["route"] == route] for name in TABLES
        }
        copies = None if self.duplicates is None else {route: self.duplicates.get(route, 0)}
        return self._replace(**mine, duplicates=copies)

    @property
    def routes(self) -> list[str]:
        """All routes that have figures."""
        rows = (*self.days, *self.gaps, *self.forecast)
        return sorted({str(row["route"]) for row in rows})

    @property
    def copies(self) -> int | None:
        """The number of duplicates; None if unknown."""
        return None if self.duplicates is None else sum(self.duplicates.values())

    @property
    def lost_entries(self) -> int:
        """The number of journal entries that were cut unread."""
        return sum(row["lost_entries"] for row in self.gaps)

    @property
    def waiting(self) -> int:
        """The number of envelopes that are to fall due."""
        return sum(row["due"] for row in self.forecast)

    @property
    def ahead(self) -> list[Row]:
        """The forecast from the page's hour on: what is overdue tells nothing of what comes."""
        hour = self.made_at.replace(minute=0, second=0, microsecond=0)
        return [row for row in self.forecast if row["at"] >= hour]

    def total(self, *kinds: str) -> int:
        """Return the number of journal entries of these kinds."""
        return sum(row[kind] for row in self.days for kind in kinds)


def format_count(value: float) -> str:
    """Format a count; from ten thousand on in thousands or millions.

    >>> [format_count(value) for value in (9_999, 12_345, 1_234_567, 2_000_000)]
    ['9,999', '12.3k', '1.23M', '2M']
    """
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= max(size, 10_000):
            return (
                f"{value / size:.3g}{unit}"
                if value < 1_000 * size
                else f"{value / size:,.0f}{unit}"
            )
    return f"{value:,.0f}"


def format_duration(ms: float) -> str:
    """Format milliseconds in the largest unit with a value of at least two, or in seconds.

    >>> [format_duration(ms) for ms in (7, 1_500, 100_000, 7_200_000, 172_800_000)]
    ['7 ms', '1.5 s', '100 s', '2 h', '2 d']
    """
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if abs(ms) >= (size if unit == "s" else 2 * size):
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.0f} ms"
