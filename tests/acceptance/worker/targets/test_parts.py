"""What a worker does about a part of a target that is away while the others are well."""

from collections.abc import Callable

import pytest

from duebridge.ports.publisher import CONFIRMED, Delivery, Outcome, Verdict
from tests.acceptance.targets import Targets
from tests.support.desk import names
from tests.support.floor import Floor

SILENT = Outcome(Verdict.INDETERMINATE, error_class="Timeout", error_message="no confirm", part=1)
LEADERLESS = Outcome(
    Verdict.PART_UNAVAILABLE, error_class="NoLeader", error_message="partition 1", part=1
)
WELL = Outcome(CONFIRMED.verdict, part=0)
DEAD_KEY, WELL_KEY = b"dead", b"well"


class Parts(Targets):
    """A floor whose one target has two parts; that of the key `dead` answers with `dead`."""

    dead: Outcome = WELL

    def _answer(self, delivery: Delivery) -> Outcome | None:
        self.tries.append((self.floor.elapsed_ms, delivery.id, str(delivery.target.topic)))
        return self.dead if delivery.key == DEAD_KEY else WELL

    def tries_of(self, prefix: str) -> int:
        return sum(name.startswith(prefix) for _, name, _ in self.tries)

    @property
    def modes(self) -> list[str]:
        return [each.mode for each in self.floor.lane.targets.held()]


@pytest.fixture
def parts(build_floor: Callable[..., Floor]) -> Parts:
    return Parts(build_floor())


def test_part_without_a_leader_delays_no_other_part_behind_its_backlog(parts: Parts) -> None:
    parts.dead = SILENT
    parts.schedule(*names(5000, "dead"), key=DEAD_KEY)
    parts.run(1000)
    assert parts.modes == ["held"], "whether others answer is unknown by now"
    parts.dead = LEADERLESS  # the publisher has asked who leads
    parts.run(5000)
    for n in range(40):
        parts.schedule(f"well{n}", key=WELL_KEY)
        parts.run(500)
        assert f"well{n}" in parts.gone("t")
    assert parts.modes == []


def test_part_without_a_leader_costs_no_failure_and_few_tries(parts: Parts) -> None:
    parts.dead = LEADERLESS
    parts.schedule(*names(50, "dead"), key=DEAD_KEY)
    parts.run(600_000, step_ms=1000)
    flights = [parts.floor.flight(each) for each in names(50, "dead")]
    assert {flight.failures for flight in flights} == {0}
    assert not any(flight.unsure for flight in flights)
    assert parts.tries_of("dead") <= 50 * 20
    parts.dead = WELL
    parts.run(300_000, step_ms=1000)
    assert sorted(parts.gone("t")) == names(50, "dead")
