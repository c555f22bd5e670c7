"""Reads the rows of a cold tier with Arrow, without Spark: for the command line.

files by their first hour ─▶ opened when their hour comes ─▶ merged by due ─▶ without pulled rows
rows of batches that still leave the store, where they are asked for ─▶ their place in the removal
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain, compress, count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from duebridge.cold_rows import ColdRow
from duebridge.config.models import ColdTier
from duebridge.errors import ConfigError, JobFailed
from duebridge.store.due_window import DueWindow
from duebridge_connectors.spark.cold.commit_log import ColdLog
from duebridge_connectors.spark.cold.parquet.id_filter import have_any
from duebridge_connectors.spark.cold.parquet.row_groups import DUE, ID, WantedRows, read_groups
from duebridge_connectors.spark.cold.parquet.slices import FileSlice, range_of, read_slice
from duebridge_connectors.spark.files.location import place_of_tier
from duebridge_connectors.spark.filesystem import open_filesystem

_COLUMNS = [name for name in ColdRow._fields if name != "place"]
_LIFE = [ID, "generation"]


def read_cold_rows(
    tier: ColdTier,
    route: str,
    ids: tuple[str, ...],
    window: DueWindow,
    leaving: int | None = None,
) -> Iterator[ColdRow]:
    """Yield the cold rows of some ids, or of all (none given), due within a window, earliest first.

    `leaving`, a shard's number, adds those of batches that still leave it, with their `place`.
    Raises `ConfigError` for a tier that cannot be read.
    """
    log = ColdLog(place_of_tier(tier, route), route)
    try:
        yield from _ColdRows(log, ids, window, leaving).walk()
    except (OSError, pa.ArrowException, JobFailed) as error:
        raise ConfigError(f"routes.{route}.cold_tier.path: cannot be read: {error}") from error


class _ColdRows:
    """The rows of a log's present state that a command asked for."""

    def __init__(
        self, log: ColdLog, ids: tuple[str, ...], window: DueWindow, leaving: int | None
    ) -> None:
        self._files, self._root = open_filesystem(log.root)
        self._state, self._leaving = log.state(), leaving
        unfinished = [] if leaving is None else self._state.unfinished
        self._unfinished = {batch.batch: batch.files for batch in unfinished}
        self._ids = pa.array(ids, pa.string()) if ids else None
        self._from_ms = window.from_ms or 0
        self._until_ms = 0 if window.to_ms is None else window.to_ms + 1

    def walk(self) -> Iterator[ColdRow]:
        pulled: set[tuple[Any, ...]] | None = None
        for row in self._merged():
            if pulled is None:
                pulled = self._pulled()
            if row[:3] not in pulled:
                is_leaving = row.batch in self._unfinished
                yield row._replace(place=self._place(row)) if is_leaving else row

    def _merged(self) -> Iterator[ColdRow]:
        """Yield rows by due; a file is opened once no earlier row is left."""
        order = count()
        waiting: list[tuple[int, int, ColdRow | None, Iterator[ColdRow]]] = []
        for begin_ms, part in self._parts():
            heappush(waiting, (begin_ms, next(order), None, self._rows(part)))
        while waiting:
            _, _, row, rest = heappop(waiting)
            if row is not None:
                yield row
            if (following := next(rest, None)) is not None:
                heappush(waiting, (following.due_at_ms, next(order), following, rest))

    def _parts(self) -> list[tuple[int, FileSlice]]:
        """Return the slices that may have wanted rows, each with the first hour of its rows."""
        found = []
        for name in chain(self._state.files, *self._unfinished.values()):
            begin_ms, end_ms = range_of(name)
            if end_ms > self._from_ms and not (self._until_ms and begin_ms >= self._until_ms):
                found.append((begin_ms, read_slice(name)))
        if self._ids is None:
            return found
        paths = [f"{self._root}/{part.file}" for _, part in found]
        return [*compress(found, have_any(self._files, paths, self._ids.to_pylist()))]

    def _rows(self, part: FileSlice) -> Iterator[ColdRow]:
        """Yield the rows of a file by due; those of version 0.2 have them in any order."""
        tables = self._tables(part)
        if "due=" not in part.file:
            found = [*tables]
            tables = iter([pa.concat_tables(found)] if found else [])
        for table in tables:
            yield from (ColdRow(*row) for row in _tuples(table.sort_by(DUE)))

    def _tables(self, part: FileSlice) -> Iterator[pa.Table]:
        ends = [end for end in (part.until_ms, self._until_ms) if end]
        wanted = WantedRows(max(part.from_ms, self._from_ms), min(ends, default=0), self._ids)
        return read_groups(self._files, f"{self._root}/{part.file}", _COLUMNS, wanted)

    def _place(self, row: ColdRow) -> int:
        """Return how many rows of the shard a demote removes before this one of its batch."""
        generation = pc.field("generation")
        is_lower = (pc.field(ID) == row.id) & (generation < row.generation)
        is_before = (pc.field("shard") == self._leaving) & ((pc.field(ID) < row.id) | is_lower)
        before = pa.concat_tables(
            table.filter(is_before).select(_LIFE)
            for file in self._unfinished[row.batch]
            for table in read_groups(self._files, f"{self._root}/{file}", [*_LIFE, "shard"])
        )
        distinct: int = before.group_by(_LIFE).aggregate([]).num_rows
        return distinct

    def _pulled(self) -> set[tuple[Any, ...]]:
        """Return id, batch and generation of rows that are already back in the store."""
        wanted = WantedRows(ids=self._ids)
        return {
            key
            for file in self._state.pulled
            for table in read_groups(self._files, f"{self._root}/{file}", _COLUMNS[:3], wanted)
            for key in _tuples(table)
        }


def _tuples(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)
