"""A fault scenario as a value, and what came of it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from tests.faults.judgement import Look
    from tests.faults.rig import Rig

KAFKA, RABBITMQ = ("kafka",), ("rabbitmq",)
BROKERS = (*KAFKA, *RABBITMQ)
COUNT = 2000
DRAINS_WITHIN_S = 60.0

Config: TypeAlias = dict[str, Any]  # of a bridge, as YAML has it


def as_it_is(rig: "Rig", config: Config) -> None:
    """Change nothing."""


def unhurried(rig: "Rig", config: Config) -> None:
    """Have the product's own deadlines: the rig's are so short that a busy machine misses them."""
    del config["worker"]["publish_deadline"], config["defaults"]["lease"]


class Scenario(NamedTuple):
    """What is broken, and what may lawfully come of it.

    `inject` breaks it, and may return what gives the bounds once everything that came was seen.
    `arrange` changes the rig's configuration and opens more targets before any worker starts.
    `faults` are planned; fewer that struck messages in flight and whose effect was seen make the
    run INVALID. `through` names the links that are used instead of the straight way. `may_repeat`:
    a fault may repeat what is in flight. `may_bury`: it may end envelopes as dead. `may_count`: it
    may count as an envelope's failure. `keeps_dead`: so many dead ones may stay in the store.
    `in_cluster`: the target is in two Kafka brokers. `over_s`: in so many seconds the traffic has
    scheduled its count; 0 is none at all.
    """

    name: str
    inject: "Callable[[Rig], Look | None]"
    faults: int = 1
    workers: int = 2
    brokers: Sequence[str] = BROKERS
    through: frozenset[str] = frozenset()
    may_repeat: bool = True
    may_bury: bool = False
    over_s: float = 2.0
    may_count: bool = True
    keeps_dead: int = 0
    in_cluster: bool = False
    arrange: "Callable[[Rig, Config], None]" = as_it_is
    drains_within_s: float = DRAINS_WITHIN_S


# Two Kafka brokers, and an outage of theirs: the target's state, never the message's fault.
IN_CLUSTER: Config = {"brokers": KAFKA, "in_cluster": True, "may_count": False}


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

    `may_repeat` is how many copies its faults may have made: as many as were in flight.
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
    may_repeat: int = 0
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
