"""The default suite's slice of the fault matrix; `make proof` runs all of it.

Every accepted id is accounted for by reading the broker back. A fault counts only if messages were
in flight when it struck and its effect was seen.
"""

import os
import secrets
from pathlib import Path

import pytest

from tests.faults.rig import Rig, run_scenario
from tests.faults.scenario import BROKERS, COUNT, Scenario
from tests.faults.stack import Stack
from tests.faults.table import MATRIX, SCENARIOS, SLICE

COUNT_WITHOUT_FAULT = 100_000
WHOLE = "DUEBRIDGE_FAULT_MATRIX"  # set it to run every scenario

pytestmark = pytest.mark.timeout(300)


def nothing(rig: Rig) -> None:
    """Break nothing at all."""


@pytest.mark.parametrize("broker", BROKERS)
def test_run_without_a_fault_delivers_each_exactly_once(
    stack: Stack, tmp_path: Path, broker: str
) -> None:
    scenario = Scenario("nothing", nothing, faults=0, may_repeat=False)
    result = run_scenario(
        stack, scenario, broker, tmp_path, secrets.token_hex(4), COUNT_WITHOUT_FAULT
    )
    assert result.outcome == "held", result
    assert result.accepted == COUNT_WITHOUT_FAULT
    assert result.delivered > COUNT_WITHOUT_FAULT - result.cancelled - 1


@pytest.mark.parametrize(("name", "broker"), MATRIX if os.environ.get(WHOLE) else SLICE)
def test_scenario_keeps_the_guarantee(stack: Stack, tmp_path: Path, name: str, broker: str) -> None:
    seed = secrets.token_hex(4)
    result = run_scenario(stack, SCENARIOS[name], broker, tmp_path, seed, COUNT)
    assert result.outcome == "held", f"{result}; histories in {tmp_path}"
