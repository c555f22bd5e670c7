"""What must stay small: a trial of each bound, small, and that breaking one is noticed.

`make proof` tries them at full size: ten minutes without a broker, a million due at once.
"""

import os
import secrets
from pathlib import Path

import msgspec
import pytest

from tests.faults.bounds import Bound
from tests.faults.burst import BODY_BYTES, LARGE_BYTES, Seen, run_burst
from tests.faults.leftovers import SLACK_BYTES, Leftovers, signed
from tests.faults.observed_worker import Touched, touched
from tests.faults.outage import Outage, run_outage
from tests.faults.scenario import BROKERS, Result
from tests.faults.stack import Stack
from tests.faults.tally import TRIALS, Run, enough, report

OUTAGE_S = 10.0
MIB = 2**20
WHOLE = "DUEBRIDGE_FAULT_MATRIX"  # set it to try both brokers

pytestmark = pytest.mark.timeout(300)


def outage(**found: object) -> Outage:
    """One in which nothing went wrong: 100 s frozen, then 100 s killed, of one worker alone."""
    good = Outage(deadline_s=15, alone_from=0, killed_at=100, ended_at=200)
    good.connected_at = [float(at) for at in range(200)]
    good.most_bytes = 64 * MIB
    return msgspec.structs.replace(good, **found)


def seen(**found: object) -> Seen:
    """A burst in which nothing went wrong."""
    times = {"claim": [4.9] * 2000, "ack": [1.0] * 2000}
    return Seen(**{"times": times, "touched": [Touched("claim", 1000, 4 * MIB)], **found})


def broken(bounds: list[Bound]) -> list[str]:
    return [each.what for each in bounds if not each.is_kept]


def test_outage_within_its_bounds_is_held() -> None:
    assert broken(outage().bounds(dead=0, stopped_in_s=1.0)) == []


@pytest.mark.parametrize(
    ("found", "what"),
    [
        ({"most_bytes": 65 * MIB}, "worker memory grew by, MiB"),
        ({"connected_at": [0.95 * at for at in range(107)]}, "broker frozen"),
        ({"connected_at": [100 + 0.95 * at for at in range(105)]}, "broker killed"),
        ({"stopped_after_s": 20.1}, "lane stopped after, s"),
        ({"published_after_s": 5.1}, "first publish after the broker answered, s"),
        ({"left_after_s": 25.1}, "exit by SIGTERM, broker frozen, s"),
    ],
)
def test_outage_beyond_a_bound_is_broken(found: dict[str, object], what: str) -> None:
    wrong = broken(outage(**found).bounds(dead=0, stopped_in_s=1.0))
    assert len(wrong) == 1
    assert wrong[0].endswith(what)


def test_outage_with_a_dead_letter_or_a_slow_stop_is_broken() -> None:
    assert broken(outage().bounds(dead=1, stopped_in_s=11.0)) == [
        "failures counted, each a dead letter",
        "exit by SIGTERM, broker well, s",
    ]


def test_burst_within_its_bounds_is_held() -> None:
    assert broken(seen().bounds()) == []


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (
            {"times": {"claim": [1.0] * 997 + [5.1] * 3}},
            "claim: p99.9 of 1,000 calls of 0.1 ms or more, ms (p50 1.0, p99 1.0)",
        ),
        ({"times": {"ack": [1.0] * 2000 + [10.0]}}, "calls of 10 ms or more"),
        ({"touched": [Touched("promote", 1001)]}, "ids of one call, most"),
        ({"touched": [Touched("claim", 1, 4 * MIB + 1)]}, "bytes of one call, most"),
        ({"most_ready": 10_001}, "ready at once, most"),
        ({"taken_bytes": 1000, "kept_bytes": 11}, "memory left but the journal, % of what it took"),
    ],
)
def test_burst_beyond_a_bound_is_broken(found: dict[str, object], what: str) -> None:
    assert broken(seen(**found).bounds()) == [what]


def test_leftovers_beyond_journal_and_counters_are_violations() -> None:
    assert Leftovers(["{n:r:0}:journal", "{n:r:0}:meta"], 0, SLACK_BYTES).violations() == {}
    assert Leftovers(["{n:r:0}:flight"], 0, SLACK_BYTES + 1).violations() == {
        "left_over_keys": ["{n:r:0}:flight"],
        "left_over_memory": [f"{SLACK_BYTES + 1} bytes"],
    }


def test_memory_below_zero_is_read_as_such() -> None:
    assert signed(18446744073708247264) == -1304352
    assert signed(1304352) == 1304352


def test_call_touched_what_its_answer_holds() -> None:
    assert touched("claim", (), [[], b"t", [b"a", b"b"], [b"123", b"4"], []]) == ("claim", 2, 4)
    assert touched("promote", (), [[], 7]) == ("promote", 7, 0)
    assert touched("ack", ("", 0, "unack", b"t", 3), [[], []]) == ("ack", 3, 0)
    assert touched("next", (), []) == ("next", 0, 0)


def trial(*bounds: Bound) -> Run:
    result = Result("burst", "kafka", "s", {}, accepted=10**6, bounds=[*bounds], size="a million")
    return Run("commit", TRIALS, result)


def test_trial_beyond_a_bound_is_broken_and_the_report_says_so() -> None:
    runs = [trial(Bound("slowest, ms", 6, 5)), trial(Bound("longest fork, ms", 70))]
    page = report(runs, "c0ffee", "2 cores", 4000)
    assert [run.result.outcome for run in runs] == ["BROKEN", "held"]
    assert "| burst of a million, kafka | slowest, ms | 6 | 5 | **BROKEN** |" in page
    assert "| burst of a million, kafka | longest fork, ms | 70 |  | reported |" in page
    assert "- **BROKEN**: burst on kafka: slowest, ms: 6" in page


def test_trial_adds_nothing_to_what_the_rounds_must_accept() -> None:
    assert not enough([trial()], "kafka", accepted=1, effective=0)


@pytest.mark.long
@pytest.mark.parametrize("broker", BROKERS if os.environ.get(WHOLE) else ["kafka"])
def test_short_outage_keeps_its_bounds(stack: Stack, tmp_path: Path, broker: str) -> None:
    result = run_outage(stack, broker, tmp_path, secrets.token_hex(4), OUTAGE_S)
    assert result.outcome == "held", f"{result}; histories in {tmp_path}"


@pytest.mark.parametrize(("count", "body_bytes"), [(20_000, BODY_BYTES), (200, LARGE_BYTES)])
def test_small_burst_keeps_its_bounds(
    stack: Stack, tmp_path: Path, count: int, body_bytes: int
) -> None:
    """Its times and its share of memory are left to `make proof`: of so few they are luck."""
    result = run_burst(stack.kafka_bootstrap(), tmp_path, secrets.token_hex(4), count, body_bytes)
    large_only = (" ms", "memory left")
    wrong = [what for what in broken(result.bounds) if not any(each in what for each in large_only)]
    assert (wrong, result.violations, result.effective) == ([], {}, 1), result
