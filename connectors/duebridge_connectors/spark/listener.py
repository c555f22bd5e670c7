"""Figures of streaming queries for a monitor: rows, rejects and lag of every batch.

    query ─▶ Spark's progress: rows, offsets ─┐
    commit ─▶ SUMMARY/batch-N.json: counts ───┴─▶ BatchFigures ─▶ your function

Spark has no figures of a Python sink, so the counts come from the files of option `summary`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from duebridge_connectors.spark.filesystem import open_filesystem
from duebridge_connectors.spark.source.journal.offset import ShardOffset
from duebridge_connectors.spark.source.loader import Summary
from duebridge_connectors.spark.source.options import given_path


class BatchFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch of a query did."""

    query: str
    """The query's name, or its id if it has none."""
    batch: int
    rows: int
    """Rows read of all sources."""
    rows_per_second: float
    duration_ms: int
    lag: int | None
    """What waits behind the batch: journal entries or Kafka records; None of other sources."""
    counts: Summary | None
    """What became of the rows that were written; None without option `summary`."""

    @property
    def rejects(self) -> int | None:
        """Rows that were refused; None where that is unknown."""
        return None if self.counts is None else self.counts.rejects


class FiguresListener(StreamingQueryListener):
    """Calls a function with the figures of every batch: `spark.streams.addListener(...)`.

    `summary` is the directory that the writer's option `summary`, or an intake's, names.
    """

    def __init__(self, report: Callable[[BatchFigures], None], summary: str | None = None) -> None:
        self._report = report
        self._summary = summary and given_path(summary)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: there are no figures yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Report a batch."""
        self._report(figures_of(json.loads(event.progress.json), self._summary))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the last batch has been reported."""


def figures_of(progress: Mapping[str, Any], summary: str | None = None) -> BatchFigures:
    """Return the figures of Spark's progress of a batch."""
    sources = progress["sources"]
    lags = [_lag(source.get("endOffset"), source.get("latestOffset")) for source in sources]
    known = [lag for lag in lags if lag is not None]
    return BatchFigures(
        query=progress.get("name") or progress["id"],
        batch=progress["batchId"],
        rows=sum(source["numInputRows"] for source in sources),
        rows_per_second=sum(source.get("processedRowsPerSecond") or 0.0 for source in sources),
        duration_ms=progress.get("durationMs", {}).get("triggerExecution", 0),
        lag=sum(known) if known else None,
        counts=_counts(summary, progress["batchId"]),
    )


def _counts(summary: str | None, batch: int) -> Summary | None:
    if summary is None:
        return None
    files, path = open_filesystem(summary)
    try:
        with files.open_input_stream(f"{path}/batch-{batch:09}.json") as stream:
            return msgspec.json.decode(stream.read(), type=Summary)
    except FileNotFoundError:  # a batch without rows
        return None


def _lag(end: Any, latest: Any) -> int | None:
    """Return the distance of two offsets of a source; None where they are of another kind."""
    if not (isinstance(end, Mapping) and isinstance(latest, Mapping)):
        return None
    parts = [_part(end.get(name), there) for name, there in latest.items()]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _part(end: Any, latest: Any) -> int | None:
    """Return the distance of two offsets of a shard or topic."""
    if isinstance(latest, list):  # a shard of the journal
        there = ShardOffset.read(latest)
        return there.numbering.count(ShardOffset.read(end).until if end else 0, there.until)
    if isinstance(latest, Mapping):  # a topic of Kafka: its partitions
        return sum(int(offset) - int((end or {}).get(name, 0)) for name, offset in latest.items())
    return None
