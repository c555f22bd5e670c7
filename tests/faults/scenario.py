"""A fault scenario as a value, and what came of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from tests.faults.rig import Rig

BROKERS = ("kafka", "rabbitmq")
COUNT = 2000
WINDOW = 500  # worker.in_flight of the rig: what one fault of one worker may lawfully repeat
DRAINS_WITHIN_S = 60.0


class Scenario(NamedTuple):
    """What is broken, and what may lawfully come of it.

    `faults` are planned; fewer that struck messages in flight and whose effect was seen make the
    run INVALID. `through` names the links that are used instead of the straight way. `may_repeat`:
    a fault may repeat what one worker has in flight. `may_bury`: it may end envelopes as dead.
    `in_cluster`: the target is in three Kafka brokers. `config`: the rig's own where it is empty.
    """

    name: str
    inject: "Callable[[Rig], None]"
    faults: int = 1
    workers: int = 2
    brokers: tuple[str, ...] = BROKERS
    through: frozenset[str] = frozenset()
    may_repeat: bool = True
    may_bury: bool = False
    over_s: float = 2.0
    in_cluster: bool = False
    config: str = ""
    window: int = WINDOW
    drains_within_s: float = DRAINS_WITHIN_S


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


class Result(msgspec.Struct, frozen=True):
    """One run of a scenario; `violations` has the ids by what is wrong with them.

    `emptied_s` is how long after the traffic nothing waited in the store any more. `bounds` are
    figures of this one, those of an outage or a burst in full; `size` is how large that was.
    """

    scenario: str
    broker: str
    seed: str
    violations: dict[str, list[str]]
    planned: int = 0
    effective: int = 0
    seen: list[str] = []
    accepted: int = 0
    delivered: int = 0
    dead: int = 0
    duplicates: int = 0
    recovered: int = 0
    cancelled: int = 0
    seconds: float = 0.0
    emptied_s: float = 0.0
    bounds: list[Bound] = []
    size: str = ""

    @property
    def outcome(self) -> str:
        """`held`, `BROKEN`, or `INVALID`: nothing is proved by a fault that did not strike."""
        if self.violations or not all(each.is_kept for each in self.bounds):
            return "BROKEN"
        return "held" if self.effective >= self.planned else "INVALID"
