"""The default suite's slice of the fault matrix, and of the bounds; `make proof` runs all of it.

Every accepted id is accounted for by reading the broker back. A fault counts only if messages were
in flight when it struck and its effect was seen.
"""

import gc
import os
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.burst import BODY_BYTES, LARGE_BYTES, run_burst
from tests.faults.outage import run_outage
from tests.faults.rig import Rig, run_scenario
from tests.faults.scenario import BROKERS, COUNT, Scenario, unhurried
from tests.faults.servers.stack import Stack
from tests.faults.table import LONG_SLICE, MATRIX, SCENARIOS, SLICE

COUNT_WITHOUT_FAULT = 5_000
OUTAGE_S = 10.0
WHOLE = "DUEBRIDGE_FAULT_MATRIX"  # set it to run every scenario

pytestmark = [
    pytest.mark.timeout(300),
    # kafka-python leaves a socket to a killed broker to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, rabbitmq_url: str
) -> Iterator[Stack]:
    """Services that may be killed; the first set being there proves that they are installed."""
    assert kafka_bootstrap
    assert rabbitmq_url
    with closing(Stack(tmp_path_factory.mktemp("services"))) as stack:
        yield stack
    gc.collect()  # here, where a socket left open is no warning


def nothing(rig: Rig) -> None:
    """Break nothing at all."""


@pytest.mark.parametrize("broker", BROKERS)
def test_run_without_a_fault_delivers_each_exactly_once(
    stack: Stack, tmp_path: Path, broker: str
) -> None:
    scenario = Scenario("nothing", nothing, 0, may_repeat=False, arrange=unhurried)
    seed = secrets.token_hex(4)
    result = run_scenario(stack, scenario, broker, tmp_path, seed, COUNT_WITHOUT_FAULT)
    assert result.outcome == "held", result
    assert result.accepted == COUNT_WITHOUT_FAULT
    assert result.delivered > COUNT_WITHOUT_FAULT - result.cancelled - 1


WANTED = [
    *(MATRIX if os.environ.get(WHOLE) else SLICE),
    *(pytest.param(*each, marks=pytest.mark.long) for each in LONG_SLICE),
]


@pytest.mark.parametrize(("name", "broker"), WANTED)
def test_scenario_keeps_the_guarantee(stack: Stack, tmp_path: Path, name: str, broker: str) -> None:
    seed = secrets.token_hex(4)
    result = run_scenario(stack, SCENARIOS[name], broker, tmp_path, seed, COUNT)
    broken = [each for each in result.bounds if not each.is_kept]
    found = (result.outcome, {what: len(ids) for what, ids in result.violations.items()}, broken)
    assert found == ("held", {}, []), f"{result}; histories in {tmp_path}"


@pytest.mark.long
@pytest.mark.parametrize("broker", BROKERS if os.environ.get(WHOLE) else ["kafka"])
def test_short_outage_keeps_its_bounds(stack: Stack, tmp_path: Path, broker: str) -> None:
    result = run_outage(stack, broker, tmp_path, secrets.token_hex(4), OUTAGE_S)
    assert result.outcome == "held", f"{result}; histories in {tmp_path}"


BURSTS = [(20_000, BODY_BYTES), pytest.param(500, LARGE_BYTES, marks=pytest.mark.long)]


@pytest.mark.parametrize(("count", "body_bytes"), BURSTS)
def test_small_burst_keeps_its_bounds(
    stack: Stack, tmp_path: Path, count: int, body_bytes: int
) -> None:
    """Its times and its share of memory are left to `make proof`: of so few they are luck."""
    result = run_burst(stack.kafka_bootstrap(), tmp_path, secrets.token_hex(4), count, body_bytes)
    broken = [each.what for each in result.bounds if not each.is_kept]
    wrong = [what for what in broken if " ms" not in what and "memory left" not in what]
    assert (wrong, result.violations, result.effective) == ([], {}, 1), result
