"""A figure that a run found, and the limit that it has to keep."""

import msgspec


class Bound(msgspec.Struct, frozen=True):
    """One row of the table; `what` has the unit."""

    what: str
    found: float
    limit: float | None = None

    @property
    def is_kept(self) -> bool:
        """Whether it is within its limit; one without is only reported."""
        return self.limit is None or self.found <= self.limit

    @property
    def words(self) -> tuple[str, str]:
        """What was found, and the limit or nothing, as people read numbers."""
        return _number(self.found), "" if self.limit is None else _number(self.limit)

    @property
    def verdict(self) -> str:
        """`reported`, `held` or `BROKEN`."""
        if self.limit is None:
            return "reported"
        return "held" if self.is_kept else "**BROKEN**"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
