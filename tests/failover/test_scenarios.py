"""A failover of each kind; `make proof-ha` runs twenty, and writes down what it counted."""

import secrets
from pathlib import Path

import pytest

from tests.failover.rig import run_scenario
from tests.failover.scenarios import SCENARIOS

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


def runs() -> list[tuple[str, str]]:
    """Return what is tried; `fsync` only where it promises more than `async`."""
    return [
        (each.name, durability)
        for each in SCENARIOS.values()
        for durability in each.tried
        if durability != "fsync" or durability in each.keeps_all
    ]


@pytest.mark.parametrize(("name", "durability"), runs())
def test_failover_keeps_what_its_durability_promises(
    tmp_path: Path, name: str, durability: str
) -> None:
    result = run_scenario(SCENARIOS[name], durability, tmp_path, secrets.token_hex(4))
    # How soon shards are claimed again is for a machine that does nothing else: the proof says it.
    broken = result.violations.keys() - {"late"}
    assert result.effect, f"the fault did not strike: {result}"
    assert not broken, f"{sorted(broken)}: {result}; histories in {tmp_path}"
