"""The verdict on a failover and the page: pure functions, of histories made by hand."""

from pathlib import Path

import pytest

from tests.failover.judgement import Counts, count
from tests.failover.rig import Result
from tests.failover.scenarios import SCENARIOS
from tests.failover.table import BEGIN, END, Run, put_between_marks, report, summary
from tests.support.checkout import ROOT
from tests.support.model.histories import Historian, read_histories
from tests.support.model.history_events import HistoryEvent, Phase, Subject

DUE_MS, END_MS = 1000, 9000


def accepted(id: str, due_ms: int = DUE_MS) -> list[HistoryEvent]:
    return [
        HistoryEvent(1, Subject.SCHEDULE, Phase.INVOKE, id),
        HistoryEvent(2, Subject.SCHEDULE, Phase.OK, id, due_ms, "accepted"),
    ]


def cancelled(id: str) -> list[HistoryEvent]:
    return [
        HistoryEvent(3, Subject.CANCEL, Phase.INVOKE, id),
        HistoryEvent(4, Subject.CANCEL, Phase.OK, id, answer="cancelled"),
    ]


def arrived(id: str, at_ms: int = DUE_MS) -> HistoryEvent:
    return HistoryEvent(at_ms, Subject.TARGET, Phase.OK, id)


def held(id: str, due_ms: int = 2 * END_MS) -> HistoryEvent:
    return HistoryEvent(END_MS, Subject.STORE, Phase.OK, id, due_ms, answer="pending")


def unanswered(subject: Subject, id: str, answer: str, at_ms: int = 5) -> HistoryEvent:
    return HistoryEvent(at_ms, subject, Phase.INFO, id, answer=answer)


def test_count_accepted_but_nowhere_is_lost() -> None:
    events = [*accepted("a-1"), *accepted("a-2"), *accepted("a-3", END_MS * 2)]
    found = count([*events, arrived("a-2"), held("a-3")], END_MS)
    assert (found.accepted, found.lost, found.stuck) == (3, ["a-1"], [])


@pytest.mark.parametrize("event", [arrived("a-1"), held("a-1")])
def test_count_cancelled_but_there_is_brought_back(event: HistoryEvent) -> None:
    found = count([*accepted("a-1"), *cancelled("a-1"), event], END_MS)
    assert (found.brought_back, found.cancelled) == (["a-1"], 1)
    assert found.violations(keeps_all=True)["brought_back"] == ["a-1"]


def test_count_cancelled_and_gone_is_well() -> None:
    found = count([*accepted("a-1"), *cancelled("a-1")], END_MS)
    assert found.violations(keeps_all=True) == {}


def test_count_delivered_before_the_last_receipts_due_is_early() -> None:
    moved = HistoryEvent(3, Subject.RESCHEDULE, Phase.OK, "a-1", 2 * DUE_MS, "rescheduled")
    found = count([*accepted("a-1"), moved, arrived("a-1")], END_MS)
    assert found.early == ["a-1"]


def test_count_due_but_still_held_is_stuck_whatever_was_promised() -> None:
    found = count([*accepted("a-1"), held("a-1", DUE_MS)], END_MS)
    assert found.moves_lost == []
    assert found.violations(keeps_all=False) == {"stuck": ["a-1"]}


def test_count_held_for_later_than_its_last_receipt_is_a_lost_move() -> None:
    found = count([*accepted("a-1"), held("a-1", 2 * END_MS)], END_MS)
    assert (found.moves_lost, found.stuck) == (["a-1"], [])
    assert found.violations(keeps_all=False) == {}


def test_count_second_copy_is_a_duplicate_and_no_violation() -> None:
    found = count([*accepted("a-1"), arrived("a-1"), arrived("a-1", 2000)], END_MS)
    assert (found.duplicates, found.violations(keeps_all=True)) == (1, {})


def test_count_call_without_an_answer_is_one_whatever_its_batch() -> None:
    batch = [unanswered(Subject.SCHEDULE, f"a-{number}", "StoreUnavailable") for number in range(8)]
    other = unanswered(Subject.CANCEL, "b-1", "StoreUnavailable")
    assert count([*batch, other], END_MS).indeterminate == 2


def test_count_call_with_another_error_is_a_violation() -> None:
    events = [unanswered(Subject.CANCEL, "a-1", "!StoreError: odd")]
    found = count(events, END_MS)
    assert found.violations(keeps_all=False) == {"refused": ["!StoreError: odd"]}
    assert found.indeterminate == 0


def test_read_histories_of_several_processes_gives_all(tmp_path: Path) -> None:
    for name, events in (("a", accepted("a-1")), ("b", [arrived("a-1")])):
        history = Historian(tmp_path, name)
        history.write(events)
        history.close()
    assert read_histories(tmp_path) == [*accepted("a-1"), arrived("a-1")]


def result(counts: Counts, durability: str, effect: str = "killed") -> Result:
    keeps_all = durability == "replicated"
    violations = counts.violations(keeps_all=keeps_all)
    return Result("killed", durability, "seed", effect, [1.5], counts, violations, 20.0)


def test_report_of_a_loss_is_a_number_for_async_and_broken_for_replicated() -> None:
    lossy = count(accepted("a-1"), END_MS)
    runs = [Run("c0ffee", "2 cores", result(lossy, each)) for each in ("async", "replicated")]
    lines = [line for line in report(runs, SCENARIOS).splitlines() if "| master killed |" in line]
    assert [line.rsplit("| 1.5 | ")[1] for line in lines if "1.5" in line] == [
        "reported |",
        "**BROKEN** |",
    ]
    assert "- killed, replicated, seed seed: lost 1, first a-1" in report(runs, SCENARIOS)


def test_report_without_a_run_that_struck_says_not_run() -> None:
    runs = [Run("c0ffee", "2 cores", result(count([], END_MS), "async", effect=""))]
    page = report(runs, SCENARIOS)
    assert page.count("**not run**") == sum(len(each.tried) for each in SCENARIOS.values())
    assert "- 1 runs are not counted" in page


def test_rows_of_the_page_have_as_many_cells_as_its_head() -> None:
    runs = [Run("c0ffee", "2 cores", result(count([], END_MS), "async"))]
    rows = [line for line in report(runs, SCENARIOS).splitlines() if line.startswith("|")]
    assert len({line.count("|") - line.count("\\|") for line in rows}) == 1


def test_summary_counts_what_each_durability_lost_of_what_was_accepted() -> None:
    lossy, kept = count(accepted("a-1"), END_MS), count([*accepted("a-1"), arrived("a-1")], END_MS)
    found = [result(lossy, "async"), result(kept, "async"), result(kept, "replicated")]
    table = summary([Run("c0ffee", "2 cores", each) for each in found], SCENARIOS)
    assert "| master killed | 1 and 0 of 2 | not run | **0 and 0 of 1** |" in table
    assert table.splitlines()[-1].endswith(" | not run | not run | - |")


def test_summary_takes_the_place_between_the_marks_of_the_page() -> None:
    page = (ROOT / "docs" / "durability.md").read_text("utf-8")
    table = put_between_marks(page, summary([], SCENARIOS)).partition(BEGIN)[2].partition(END)[0]
    assert [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ")] == [
        "| what fails",
        *(f"| {each.what}" for each in SCENARIOS.values()),
    ]
    assert put_between_marks(put_between_marks(page, "x"), "x") == put_between_marks(page, "x")


def test_table_of_the_page_has_every_failure() -> None:
    page = (ROOT / "docs" / "durability.md").read_text("utf-8")
    assert [each.what for each in SCENARIOS.values() if f"\n| {each.what} | " not in page] == []
