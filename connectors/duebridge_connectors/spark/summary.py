"""What a write did, counted: every row is in exactly one count."""

from collections.abc import Iterable
from typing import Self

import msgspec


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a write by what became of them.

    `cold`: due beyond the horizon, and written straight to the cold tier. `duplicate`: it was there
    already, from an earlier run, or from another attempt of a task of this one. `cancelled`: a cold
    row whose tombstone says so. `refused`, `conflict` and `in_flight` were not stored, and are
    rejects. `skipped`: not tried any more, past `max_rejects`.
    """

    route: str
    accepted: int = 0
    cold: int = 0
    replaced: int = 0
    duplicate: int = 0
    cancelled: int = 0
    refused: int = 0
    conflict: int = 0
    in_flight: int = 0
    skipped: int = 0
    first_reason: str = ""

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(getattr(self, name) for name in COUNTS)

    @property
    def rejects(self) -> int:
        """Those that a rejects output holds."""
        return self.refused + self.conflict + self.in_flight

    @classmethod
    def of(cls, route: str, parts: Iterable["Summary"]) -> Self:
        """Return the sum of what the tasks did."""
        found = list(parts)
        counts = {name: sum(getattr(part, name) for part in found) for name in COUNTS}
        first = next((part.first_reason for part in found if part.first_reason), "")
        return cls(route=route, first_reason=first, **counts)

    def __str__(self) -> str:
        """Return one line for people: what there was none of is left out."""
        counts = in_words(self, COUNTS)
        changed = "" if self.accepted or self.cold or self.replaced else "; nothing was changed"
        first = f"; the first reject: {self.first_reason}" if self.first_reason else ""
        return f"route {self.route}: {self.rows:,} rows: {counts or 'none'}{changed}{first}"


def in_words(counts: msgspec.Struct, names: Iterable[str]) -> str:
    """Return these counts for people; what there was none of is left out."""
    found = ((name.replace("_", " "), getattr(counts, name)) for name in names)
    return ", ".join(f"{count:,} {name}" for name, count in found if count)


COUNTS = tuple(name for name in Summary.__struct_fields__ if name not in ("route", "first_reason"))
