"""Evidence that a test makes up: stories of ids, as the journal and the brokers would have them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from duebridge_connectors.spark.transforms.verdict import Evidence, JudgedPeriod

T = 1_700_000_000_000  # when a story begins
NEVER = 4_000_000_000_000
OF = "route string, id string"
JOURNAL = f"{OF}, shard int, kind string, at timestamp, due_at timestamp, attempt int,"
JOURNAL += " sequence long, position int, lost_entries long, reason string"
ARRIVED = f"{OF}, at timestamp, dead_letter boolean, scheduled_at timestamp, fingerprint string,"
ARRIVED += " header_due_ms long, place string"
HELD = f"{OF}, state string, waits_for timestamp, scheduled_at timestamp"
RECEIPTS = f"{OF}, status string, at timestamp, due_at timestamp, fingerprint string"


class Told(NamedTuple):
    """An entry of the journal; a gap has no instant."""

    kind: str
    at: int | None
    due: int | None = None
    attempt: int | None = None
    lost: int = 0


class Came(NamedTuple):
    """A message: when, of a life that began when, and its header; None for unknown."""

    at: int
    begun: int | None = None
    header: int | None = None
    is_dead: bool = False
    place: str = "right"
    print_of: str = ""

    def columns(self) -> tuple[Any, ...]:
        times = instant(self.at), self.is_dead, instant(self.begun)
        return *times, self.print_of, self.header, self.place


class Held(NamedTuple):
    state: str
    waits_for: int
    begun: int | None = None


class Said(NamedTuple):
    """A receipt."""

    status: str
    at: int | None = None
    due: int | None = None
    print_of: str = ""


Fact = Told | Came | Held | Said


def instant(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


class Plot:
    """Stories by route and id; the journal has them in the order of their instants."""

    def __init__(self) -> None:
        self._facts: list[tuple[str, str, Fact]] = []
        self._before: dict[str, int] = {}

    def tell(self, name: str, *facts: Fact, route: str = "r") -> None:
        self._facts += [(route, name, fact) for fact in facts]

    def begin(self, route: str, number: int) -> None:
        """Give the first entry of a route's journal a number; without it that is 1."""
        self._before[route] = number - 1

    def _of(self, kind: type) -> Iterable[tuple[str, str, Any]]:
        return (each for each in self._facts if isinstance(each[2], kind))

    def _journal(self) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        last = dict(self._before)
        for route, name, of in sorted(self._of(Told), key=_order):
            number = last.get(route, 0) + 1
            last[route] = number + max(of.lost - 1, 0)
            entry = (of.kind, instant(of.at), instant(of.due), of.attempt, number, 0, of.lost)
            rows.append((route, None if of.kind == "gap" else name, 0, *entry, None))
        return rows

    def evidence(self, spark: SparkSession) -> Evidence:
        """Return all of it; no receipts if there is none."""

        def frame(rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
            """In one part: each is a task of its own in every query."""
            return spark.createDataFrame(list(rows), schema).coalesce(1)

        came = [(route, name, *of.columns()) for route, name, of in self._of(Came)]
        held = [
            (route, name, of.state, instant(of.waits_for), instant(of.begun))
            for route, name, of in self._of(Held)
        ]
        said = [
            (route, name, of.status, instant(of.at), instant(of.due), of.print_of)
            for route, name, of in self._of(Said)
        ]
        receipts = frame(said, RECEIPTS) if said else None
        journal = frame(self._journal(), JOURNAL)
        return Evidence(journal, receipts, frame(held, HELD), frame(came, ARRIVED))


def _order(each: tuple[str, str, Told]) -> int:
    """A gap is where its `due` says, which no entry of the journal has."""
    _, _, told = each
    return (told.due if told.at is None else told.at) or 0


def period(since: int = 0, until: int = NEVER, **more: Any) -> JudgedPeriod:
    known = {"stuck_before_ms": NEVER, "late_ms": None, **more}
    return JudgedPeriod(since, until, **known)
