"""Weighs the verdicts of `reconcile` against what is missing, and sums them up.

verdicts ─▶ suspects ─▶ their stories ─┐
verdicts ──────────────────────────────┴─▶ gaps, clocks ─▶ named or in doubt ─▶ summary, files
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.audit import BROKEN
from duebridge_connectors.spark.transforms.doubts import (
    Doubts,
    blind_spans,
    clocks_behind,
    weigh,
)
from duebridge_connectors.spark.transforms.lives import read_stories, with_readings
from duebridge_connectors.spark.transforms.reconciliation import (
    HOLDS,
    Reconciliation,
    RouteVerdict,
    verdict_of,
    whats_missing,
)
from duebridge_connectors.spark.transforms.verdict import (
    KINDS,
    Evidence,
    JudgedPeriod,
    totals,
    violations,
)

MAX_EXAMPLES = 5


def kept_frame(stack: ExitStack, frame: DataFrame) -> DataFrame:
    """Keep a frame that several queries read, until the stack is closed."""
    frame.persist()
    stack.callback(frame.unpersist)
    return frame


class Weighing:
    """The verdicts, once suspects' stories are read, and weighed against what is missing."""

    def __init__(
        self, kept: ExitStack, found: DataFrame, evidence: Evidence, window: JudgedPeriod
    ) -> None:
        self._journal, self._window = evidence.journal, window
        suspects = found.where("is_suspect").select("route", "id")
        if not suspects.isEmpty():
            sources = evidence.journal, evidence.arrived, evidence.receipts
            found = kept_frame(kept, with_readings(found, read_stories(suspects, *sources)))
        has_strangers = not found.where("unexpected").isEmpty()
        spans = blind_spans(evidence.journal, with_heads=has_strangers)
        self._doubts = Doubts(spans, clocks_behind(found))
        self._found = weigh(found, self._doubts)
        self._wrong = violations(self._found)

    def summary(self) -> Reconciliation:
        """Return the verdict, its counts and examples."""
        window, rows = self._window, totals(self._found).orderBy("route").collect()
        named = [kind for kind in KINDS if any(row[kind] for row in rows)]
        doubtful = self._doubtful() if any(row["undetermined"] for row in rows) else []
        missing = whats_missing(self._doubts, window.since_ms, window.until_ms, doubtful)
        verdict = verdict_of({*named} & {*BROKEN} != set(), missing, doubtful)
        gaps = self._journal.where("kind = 'gap'").agg(F.count("*"), F.sum("lost_entries")).first()
        return Reconciliation(
            since_ms=window.since_ms,
            until_ms=window.until_ms,
            verdict=verdict,
            holds=verdict == HOLDS,
            missing=missing,
            routes=[_route_verdict(row.asDict()) for row in rows],
            examples=_examples(self._wrong.where("is_certain"), named),
            doubtful=_examples(self._wrong.where("not is_certain"), doubtful),
            gaps=gaps[0] if gaps else 0,
            lost_entries=(gaps[1] or 0) if gaps else 0,
        )

    def _doubtful(self) -> list[str]:
        kinds = self._found.select(F.explode("doubtful").alias("kind")).distinct().collect()
        return [kind for kind in KINDS if kind in {row.kind for row in kinds}]

    def write(self, out: str) -> None:
        """Write the violations, and the journal of their ids."""
        self._wrong.write.mode("overwrite").parquet(f"{out}/violations")
        ids = self._wrong.select("route", "id").distinct()
        stories = self._journal.join(F.broadcast(ids), ["route", "id"], "left_semi")
        stories = stories.orderBy("route", "id", "sequence")
        stories.write.mode("overwrite").parquet(f"{out}/stories")


def _route_verdict(row: dict[str, Any]) -> RouteVerdict:
    p50, p99, most = row.pop("late_by_ms") or (None, None, None)
    return RouteVerdict(**row, lateness_p50_ms=p50, lateness_p99_ms=p99, lateness_max_ms=most)


def _examples(wrong: DataFrame, kinds: Sequence[str]) -> dict[str, list[str]]:
    if not kinds:
        return {}
    named = wrong.select("kind", "route", "id")
    some = [named.where(F.col("kind") == kind).limit(MAX_EXAMPLES) for kind in kinds]
    rows = reduce(DataFrame.union, some).collect()
    return {
        kind: sorted(f"{row.route}/{row.id}" for row in rows if row.kind == kind) for kind in kinds
    }
