"""A run proves something only if its faults struck; the page says what there is, and what not."""

import re

import pytest

from tests.conftest import ROOT
from tests.faults.bounds import Bound
from tests.faults.goals import KNOWN
from tests.faults.proof import main
from tests.faults.scenario import Result
from tests.faults.table import MATRIX, SCENARIOS, SLICE
from tests.faults.tally import Run, enough, report


def run(**fields: object) -> Run:
    values = {"scenario": "worker_killed", "broker": "kafka", "seed": "s", "violations": {}}
    values |= {"planned": 2, "effective": 2, "accepted": 100}
    return Run("commit", 1, Result(**{**values, **fields}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({}, "held"),
        ({"effective": 1}, "INVALID"),
        ({"violations": {"lost": ["a"]}}, "BROKEN"),
        ({"violations": {"lost": ["a"]}, "effective": 0}, "BROKEN"),
    ],
)
def test_outcome_of_a_run_is_green_only_where_its_faults_struck(
    fields: dict[str, object], outcome: str
) -> None:
    assert run(**fields).result.outcome == outcome


def test_enough_counts_no_invalid_run() -> None:
    runs = [run(), run(effective=1, accepted=1000)]
    assert enough(runs, "kafka", 100, 2)
    assert not enough(runs, "kafka", 101, 2)
    assert not enough(runs, "kafka", 100, 3)
    assert not enough(runs, "rabbitmq", 100, 2)


def test_report_names_what_broke_and_what_did_not_run() -> None:
    page = report([run(), run(violations={"lost": ["a", "b"]})], "c0ffee", "2 cores", 4000)
    assert "Commit c0ffee; 2 cores; 2 runs" in page
    assert "| **lost** | 2 | 0 |" in page
    assert "**BROKEN**: round 1, worker_killed on kafka, seed s: lost 2" in page
    assert "| worker_killed | kafka | 2 | 4 | 200 |" in page
    assert "| worker_killed | rabbitmq | 0 |" in page


def test_report_names_goals_that_the_runs_do_not_reach() -> None:
    few = run(scenario="clocks_ahead", accepted=1000, duplicates=2)
    others = [run(scenario="workers_restarted", effective=40), run(emptied_s=15.6)]
    page = report([few, *others], "c0ffee", "2 cores", 4000)
    assert "- R3: 1,000 accepted while half of the clocks were wrong, the goal 1,000,000\n" in page
    assert "- R4: repeated on kafka 0.17% of 1,200 accepted, with 44 faults; the goal 0.1%" in page
    assert "- R5: worker_killed on kafka: empty 15.6 s after the traffic, the goal 15.5 s" in page
    assert "- R7: 40 orderly stops, the goal 500\n" in page


def test_report_is_silent_about_goals_that_the_runs_reach() -> None:
    many = run(scenario="clocks_ahead", accepted=1_000_000, duplicates=1000)
    page = report([many, run(scenario="workers_restarted", effective=500)], "c", "2 cores", 4000)
    assert not any(f"- {goal}:" in page for goal in ("R3", "R5", "R7"))
    assert "repeated on" not in page


def test_report_that_is_kept_lists_all_that_is_known_to_fall_short() -> None:
    kept = (ROOT / "docs" / "proof.md").read_text().split("## What falls short\n")[1]
    assert [each for each in KNOWN if f"- {each}\n" not in kept] == []


def test_report_tells_how_long_the_store_took_to_be_empty() -> None:
    page = report([run(emptied_s=2.5), run(emptied_s=1.5)], "c0ffee", "2 cores", 4000)
    assert "| longest until empty, s | 2.5 | 0.0 |" in page


def test_report_tells_the_longest_of_a_figure_that_the_runs_have() -> None:
    figures = [[Bound("until a claim, s", found, 5)] for found in (0.5, 5.5)]
    page = report([run(bounds=each) for each in figures], "c0ffee", "2 cores", 4000)
    assert "| longest until a claim, s | 5.5 |  |\n" in page
    assert "- **BROKEN**: worker_killed on kafka: until a claim, s: 5.50\n" in page


def test_page_names_every_scenario_and_nothing_that_is_not_there() -> None:
    page = (ROOT / "tests" / "faults" / "README.md").read_text()
    rows = page.split("| it says | shown by |\n")[1].split("\n\n")[0]
    named = set(re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)`", rows))
    starts = tuple(re.findall(r"`([a-z_]+)\.\.\.`", rows))
    mutants = {path.stem for path in (ROOT / "tests" / "mutants").glob("*.patch")}
    assert {
        each for each in SCENARIOS if each not in named and not each.startswith(starts)
    } == set()
    others = {each for each in named if not each.startswith("test_")}
    assert others - SCENARIOS.keys() - mutants == set()


def test_slice_is_twelve_scenarios_of_the_matrix() -> None:
    assert len(set(SLICE)) == 12
    assert set(SLICE) <= set(MATRIX)
    assert {broker for _, broker in SLICE} == {"kafka", "rabbitmq"}
    assert len(SCENARIOS) == len({each.name for each in SCENARIOS.values()})


def test_proof_of_an_unknown_scenario_says_which_there_are(tmp_path) -> None:
    with pytest.raises(SystemExit, match="expected names of worker_killed"):
        main(["--only", "nonsense", "--home", str(tmp_path)])
