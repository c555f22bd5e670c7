"""The verdict on a journal with many gaps: it comes, and each gap counts."""

import pytest
from pyspark.sql import SparkSession

from duebridge_connectors.spark.jobs.reconcile import reconcile_evidence
from duebridge_connectors.spark.transforms import missing_evidence
from tests.spark.reconcile.evidence import Came, Plot, T, Told, period

DUE = T + 10_000_000


def cut_often(gaps: int) -> Plot:
    """Envelopes that came, a gap after each, and one that may have been cancelled in the last."""
    plot = Plot()
    for begun in range(T, T + 100 * gaps, 100):
        plot.tell(f"{begun}", Told("accepted", begun, DUE), Came(DUE, begun, DUE))
        plot.tell("", Told("gap", None, begun + 50, lost=3))
    plot.tell("in doubt", Told("accepted", begun + 1, DUE))
    plot.tell("last", Told("accepted", begun + 60, DUE), Came(DUE, begun + 60, DUE))
    return plot


@pytest.mark.long
def test_reconcile_of_a_journal_with_hundreds_of_gaps_has_a_verdict(spark: SparkSession) -> None:
    found = reconcile_evidence(cut_often(500).evidence(spark), period())
    assert (found.verdict, found.examples) == ("undetermined", {})
    assert (found.doubtful, found.gaps) == ({"lost": ["r/in doubt"]}, 500)


def test_reconcile_of_more_gaps_than_are_placed_takes_all_of_the_journal_for_missing(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_evidence, "MOST_SPANS", 2)
    found = reconcile_evidence(cut_often(3).evidence(spark), period())
    assert (found.verdict, found.examples) == ("undetermined", {})
    assert found.doubtful == {"lost": ["r/in doubt"]}
    assert found.missing[0].startswith("9 entries of the journal of r/0")
