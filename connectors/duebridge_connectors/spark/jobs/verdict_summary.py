"""Weighs the verdicts of `reconcile` against what is missing, and sums them up.

facts ─▶ odd ids in full, ordinary ids counted ─▶ verdicts
verdicts ─▶ suspects ─▶ their stories ─┐
verdicts ──────────────────────────────┴─▶ gaps, clocks ─▶ named or in doubt ─▶ summary, files
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.audit import BROKEN
from duebridge_connectors.spark.files.location import FileLocation
from duebridge_connectors.spark.filesystem import write_file
from duebridge_connectors.spark.jobs.id_timelines import told_stories
from duebridge_connectors.spark.page.verdict import render_verdict
from duebridge_connectors.spark.transforms.id_histories import read_stories, with_readings
from duebridge_connectors.spark.transforms.missing_evidence import (
    NO_JOURNALS,
    MissingEvidence,
    StoreJournals,
    blind_spans,
    outline_of,
    unread_spans,
    weigh,
)
from duebridge_connectors.spark.transforms.ordinary_ids import (
    odd_facts,
    odd_keys,
    ordinary_verdicts,
    sift,
)
from duebridge_connectors.spark.transforms.reconciliation import (
    HOLDS,
    Reconciliation,
    RouteVerdict,
    verdict_of,
    whats_missing,
)
from duebridge_connectors.spark.transforms.totals import totals
from duebridge_connectors.spark.transforms.verdict import (
    KINDS,
    Evidence,
    JudgedPeriod,
    facts_of,
    some_of_each_kind,
    verdicts_of,
    violations,
)

MAX_EXAMPLES = 5
MOST_ODD = 1_000_000  # keys that every task gets, of 8 bytes; beyond it, all are judged in full


def kept_frame(stack: ExitStack, frame: DataFrame) -> DataFrame:
    """Keep a frame that several queries read, until the stack is closed."""
    frame.persist()
    stack.callback(frame.unpersist)
    return frame


class JudgedIds:
    """The verdicts on odd ids one by one, and on ordinary ids together."""

    def __init__(self, kept: ExitStack, evidence: Evidence, window: JudgedPeriod) -> None:
        self._kept, self._window = kept, window
        self._shapes = kept_frame(kept, sift(facts_of(evidence, window), window))
        self._odd = odd_keys(self._shapes)

    def verdicts(self, evidence: Evidence) -> DataFrame:
        """Return the verdicts; evidence that came since it was sifted counts for odd ids only."""
        facts = facts_of(evidence, self._window)
        if self._odd.count() > MOST_ODD:
            return kept_frame(self._kept, verdicts_of(facts, self._window))
        found = verdicts_of(odd_facts(facts, self._odd), self._window)
        rest = ordinary_verdicts(self._shapes)
        return kept_frame(self._kept, found.unionByName(rest, allowMissingColumns=True))


class VerdictSummary:
    """The verdicts, once suspects' stories are read, and weighed against what is missing."""

    def __init__(
        self,
        kept: ExitStack,
        found: DataFrame,
        evidence: Evidence,
        window: JudgedPeriod,
        journals: StoreJournals = NO_JOURNALS,
    ) -> None:
        """Weigh verdicts; `journals` are the store's, of which the evidence may have a part."""
        self._evidence, self._window = evidence, window
        outline = outline_of(found)
        if outline.has_suspects:
            suspects = found.where("is_suspect").select("route", "id")
            sources = evidence.journal, evidence.arrived, evidence.receipts
            found = kept_frame(kept, with_readings(found, read_stories(suspects, *sources)))
        self._gaps, self._lost_entries = _gaps(evidence.journal)
        spans = []
        if self._gaps or outline.has_strangers:
            spans = blind_spans(evidence.journal, with_heads=outline.has_strangers)
        if outline.has_strangers or outline.has_lost:
            spans += unread_spans(evidence.journal, journals)
        self._doubts = MissingEvidence(spans, outline.clocks)
        self._found = weigh(found, self._doubts)
        self._wrong = violations(self._found)

    def summary(self) -> Reconciliation:
        """Return the verdict, its counts and examples."""
        window, rows = self._window, totals(self._found).orderBy("route").collect()
        is_clean = not any(row[name] for row in rows for name in (*KINDS, "undetermined"))
        some = [] if is_clean else some_of_each_kind(self._wrong, MAX_EXAMPLES).collect()
        named, doubtful = (_examples(some, is_certain) for is_certain in (True, False))
        missing = whats_missing(self._doubts, window.since_ms, window.until_ms, doubtful)
        verdict = verdict_of(any(kind in BROKEN for kind in named), missing, doubtful)
        return Reconciliation(
            since_ms=window.since_ms,
            until_ms=window.until_ms,
            verdict=verdict,
            holds=verdict == HOLDS,
            missing=missing,
            routes=[_route_verdict(row.asDict()) for row in rows],
            examples=named,
            doubtful=doubtful,
            gaps=self._gaps,
            lost_entries=self._lost_entries,
        )

    def write_page(self, done: Reconciliation, path: FileLocation) -> None:
        """Write the verdict as a page, with the stories of ids that it names."""
        stories, untold = told_stories(self._wrong, self._evidence)
        write_file(path, render_verdict(done, stories, untold).encode())

    def write(self, out: str) -> None:
        """Write the violations, and the journal of their ids."""
        self._wrong.write.mode("overwrite").parquet(f"{out}/violations")
        ids = self._wrong.select("route", "id").distinct()
        stories = self._evidence.journal.join(F.broadcast(ids), ["route", "id"], "left_semi")
        stories = stories.orderBy("route", "id", "sequence")
        stories.write.mode("overwrite").parquet(f"{out}/stories")


def _route_verdict(row: dict[str, Any]) -> RouteVerdict:
    p50, p99, most = row.pop("late_by_ms") or (None, None, None)
    return RouteVerdict(**row, lateness_p50_ms=p50, lateness_p99_ms=p99, lateness_max_ms=most)


def _gaps(journal: DataFrame) -> tuple[int, int]:
    """Count the gaps of a journal, and their entries."""
    row = journal.where("kind = 'gap'").agg(F.count("*"), F.sum("lost_entries")).first()
    return (row[0], row[1] or 0) if row else (0, 0)


def _examples(rows: Sequence[Row], is_certain: bool) -> dict[str, list[str]]:
    mine = [row for row in rows if row.is_certain == is_certain]
    return {
        kind: sorted(f"{row.route}/{row.id}" for row in mine if row.kind == kind)
        for kind in KINDS
        if any(row.kind == kind for row in mine)
    }
