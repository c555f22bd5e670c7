"""A proof goes on where it was, counts what struck, and tells all of what is wrong."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from duebridge.audit import Event, Op, Phase
from tests.faults.histories import Historian
from tests.faults.judgement import judge
from tests.faults.leftovers import Leftovers
from tests.faults.proof import REPORT, Proof, commit, options
from tests.faults.rig import Fault
from tests.faults.scenario import Result
from tests.faults.table import SCENARIOS
from tests.faults.tally import Run

NOTHING_LEFT = Leftovers([], 0, 0)


def remember(home: Path, of_commit: str) -> list[Run]:
    """Leave the state file of a proof that was interrupted after one run."""
    runs = [Run(of_commit, 1, Result("worker_killed", "kafka", "s", {}, planned=1, effective=1))]
    (home / "runs.jsonl").write_bytes(msgspec.json.encode(runs[0]) + b"\n")
    return runs


def words(home: Path, *more: str) -> list[str]:
    return [
        "--home",
        str(home),
        "--report",
        str(home / "proof.md"),
        "--only",
        "worker_killed",
        *more,
    ]


def test_proof_that_was_interrupted_goes_on_with_what_is_left(tmp_path: Path) -> None:
    runs = remember(tmp_path, commit())
    proof = Proof(options(words(tmp_path)))
    assert proof.runs == runs
    assert proof._is_done(1, "worker_killed", "kafka")
    assert not proof._is_done(1, "worker_killed", "rabbitmq")


def test_proof_that_wrote_its_report_is_still_of_the_same_commit(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    report, source = tmp_path / REPORT, tmp_path / "source.py"
    report.parent.mkdir()
    git("init")
    for file in (report, source):
        file.write_text("before")
    git("add", ".")
    git("commit", "-m", "m")
    clean = commit(tmp_path)
    report.write_text("after")
    assert commit(tmp_path) == clean
    source.write_text("after")
    assert commit(tmp_path) == f"{clean}-dirty"


def test_proof_of_another_commit_is_refused_and_may_begin_anew(tmp_path: Path) -> None:
    remember(tmp_path, "another")
    with pytest.raises(SystemExit, match="has runs of another: begin with --anew"):
        Proof(options(words(tmp_path)))
    assert Proof(options(words(tmp_path, "--anew"))).runs == []


@pytest.mark.parametrize(
    ("in_flight", "effect", "is_effective"),
    [(1, "seen", True), (0, "seen", False), (1, "", False)],
)
def test_fault_is_effective_where_it_struck_and_was_seen(
    in_flight: int, effect: str, is_effective: bool
) -> None:
    fault = Fault("a fault", in_flight, {})
    fault.effect = effect
    assert fault.is_effective is is_effective


def test_judge_of_a_lost_one_keeps_its_whole_history_and_no_other(tmp_path: Path) -> None:
    due_ms = 5000
    ids = ("gone", "fine")
    asked = [Event(1, Op.SCHEDULE, Phase.INVOKE, each, fingerprint="p") for each in ids]
    calls = asked + [Event(2, Op.SCHEDULE, Phase.OK, each, due_ms, "accepted") for each in ids]
    history = Historian(tmp_path, "producer")
    history.write([*calls, Event(due_ms, Op.TARGET, Phase.OK, "fine", fingerprint="p")])
    history.close()
    _, violations = judge(tmp_path, SCENARIOS["worker_killed"], 1, NOTHING_LEFT)
    assert violations == {"lost": ["gone"]}
    told = (tmp_path / "violations.jsonl").read_bytes()
    found = msgspec.json.Decoder(Event).decode_lines(told)
    assert found == [each for each in calls if each.id == "gone"]


def test_judge_of_a_clean_run_keeps_nothing(tmp_path: Path) -> None:
    Historian(tmp_path, "producer").close()
    assert judge(tmp_path, SCENARIOS["worker_killed"], 1, NOTHING_LEFT)[1] == {}
    assert not (tmp_path / "violations.jsonl").exists()
