"""What the store answered, written down, and the verdict on it.

With what the readers saw, the answers make the history that the audit judges.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from duebridge.audit import AcceptedEnvelope, ArrivedEnvelope, AuditVerdict, History
from duebridge.envelope import Envelope
from duebridge.receipt import Receipt
from rich.box import SIMPLE_HEAD
from rich.table import Table

from departures import TARGETS, expected_fingerprint

ALL = "all"
COUNTS = ("accepted", "delivered", "cancelled", "dead", "duplicate_copies")
VIOLATIONS = ("early", "lost", "after_cancel", "corrupt", "unexpected", "stuck")
LABELS = {"duplicate_copies": "duplicate"}  # corrupt: in body, key or headers
PERCENTILES = {50: "p50", 99: "p99", 100: "max"}


class Seen(NamedTuple):
    """A message that arrived: of which route, and whether as a dead letter."""

    route: str
    is_dead: bool
    arrived: ArrivedEnvelope


class Ledger:
    """Goes by the store's answers only, never by what was meant."""

    def __init__(self) -> None:
        self._accepted: dict[tuple[str, str], AcceptedEnvelope] = {}
        self._cancelled: set[tuple[str, str]] = set()
        self._excused: set[tuple[str, str]] = set()
        self.rescheduled = 0

    @property
    def last_due_ms(self) -> int:
        """When the last accepted envelope is due."""
        return max((each.due_at_ms for each in self._accepted.values()), default=0)

    def note_receipt(self, envelope: Envelope, receipt: Receipt) -> None:
        """Write down what was accepted; raises for any other answer, which a fresh store has not.

        Every id is new here, so `duplicate` or `conflict` would be a defect of the demo.
        """
        if receipt.status != "accepted":
            raise RuntimeError(f"{receipt.id}: expected accepted; got {receipt.status}")
        self._note(receipt.route, envelope, receipt.due_at_ms)

    def note_sent(self, route: str, envelope: Envelope) -> None:
        """Write down what a broker confirmed to a program: its intake has to bring it."""
        self._note(route, envelope, envelope.due.ms)

    def _note(self, route: str, envelope: Envelope, due_at_ms: int) -> None:
        print_of = expected_fingerprint(envelope, route)
        self._accepted[route, envelope.id] = AcceptedEnvelope(envelope.id, due_at_ms, print_of)

    def note_cancel(self, route: str, id: str, answer: str) -> None:  # noqa: A002
        """Write down a cancel's answer; any but *cancelled* and *in_flight* changed nothing."""
        if answer == "cancelled":
            self._cancelled.add((route, id))
        elif answer == "in_flight":
            self._excused.add((route, id))

    def note_reschedule(self, route: str, id: str, answer: str, due_ms: int) -> None:  # noqa: A002
        """Write down a reschedule's answer; any but *rescheduled* changed nothing."""
        if answer == "rescheduled":
            old = self._accepted[route, id]
            self._accepted[route, id] = msgspec.structs.replace(old, due_at_ms=due_ms)
            self.rescheduled += 1

    def history(
        self, routes: Sequence[str], seen: Sequence[Seen], held: Mapping[str, str]
    ) -> History:
        """Return all that is known of some routes; `held` is what the store has left of them."""
        arrived = [each for each in seen if each.route in routes]
        return History(
            accepted=[each for (route, _), each in self._accepted.items() if route in routes],
            delivered=[each.arrived for each in arrived if not each.is_dead],
            dead=[each.arrived for each in arrived if each.is_dead],
            cancelled=frozenset(each for route, each in self._cancelled if route in routes),
            excused=frozenset(each for route, each in self._excused if route in routes),
            held=held,
        )


def holds(verdicts: Mapping[str, AuditVerdict]) -> bool:
    """Whether the guarantee was kept on every route, and by all of them together."""
    return all(verdict.holds for verdict in verdicts.values())


def verdict_table(verdicts: Mapping[str, AuditVerdict]) -> Table:
    """Return the verdicts side by side."""
    table = Table(title="The verdict", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.title_style, table.title_justify = "bold", "left"
    table.add_column("")
    for name in verdicts:
        table.add_column(f"{name}\n{TARGETS.get(name, '')}", justify="right")
    for name in (*COUNTS, *VIOLATIONS):
        found = [getattr(each, name) for each in verdicts.values()]
        cells = [str(each if isinstance(each, int) else len(each)) for each in found]
        table.add_row(LABELS.get(name, name.replace("_", " ")), *cells)
    for percent, name in PERCENTILES.items():
        table.add_row(f"lateness {name}", *(_late(each, percent) for each in verdicts.values()))
    return table


def _late(verdict: AuditVerdict, percent: float) -> str:
    return f"{verdict.lateness_percentile_ms(percent)} ms" if verdict.lateness_ms else "-"


def conclusion(verdicts: Mapping[str, AuditVerdict]) -> str:
    """Return the verdict in a sentence, with a few ids of each kind of violation."""
    if holds(verdicts):
        return "The guarantee held: nothing lost, nothing early, nothing after its cancel."
    found = {kind: getattr(verdicts[ALL], kind) for kind in VIOLATIONS}
    told = "; ".join(f"{kind}: {', '.join(ids[:5])}" for kind, ids in found.items() if ids)
    return f"The guarantee was BROKEN: {told}"
