"""Two failovers of each kind; `make proof-ha` runs twenty, and writes down what it counted."""

import secrets
from pathlib import Path

import pytest

from tests.failover.rig import DURABILITIES, run_scenario
from tests.failover.scenarios import SCENARIOS

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

TIMES = 2


@pytest.mark.parametrize("time", range(TIMES))
@pytest.mark.parametrize("durability", [each for each in DURABILITIES if each != "fsync"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_failover_keeps_what_its_durability_promises(
    tmp_path: Path, name: str, durability: str, time: int
) -> None:
    result = run_scenario(SCENARIOS[name], durability, tmp_path, secrets.token_hex(4))
    assert result.outcome == "held", f"{result}; histories in {tmp_path}"
