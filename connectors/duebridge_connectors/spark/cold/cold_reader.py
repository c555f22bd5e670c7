"""Reads the rows of a cold tier hour by hour with Arrow, without Spark: for the command line."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from duebridge.admin.cold_rows import ColdRow
from duebridge.admin.listing import DueWindow
from duebridge.config.models import ColdTier
from duebridge.errors import ConfigError
from duebridge_connectors.spark.cold.commit_log import ColdLog, TierState
from duebridge_connectors.spark.cold.slices import range_of
from duebridge_connectors.spark.files.place import place_of_tier
from duebridge_connectors.spark.filesystem import open_filesystem

_COLUMNS = list(ColdRow._fields)


def read_cold_rows(
    tier: ColdTier, route: str, envelope_id: str, window: DueWindow
) -> Iterator[ColdRow]:
    """Yield the cold rows of one id, or of all (''), due within a window, earliest first.

    Raises `ConfigError` for a tier that cannot be read.
    """
    log = ColdLog(place_of_tier(tier, route), route)
    try:
        state = log.state()
        pulled = _pulled(log, state)
        for _, files in sorted(_by_hour(state, window).items()):
            rows = _read(log, files, _COLUMNS, _filter(envelope_id, window)).sort_by("due_at_ms")
            found = (ColdRow(*row) for row in _tuples(rows))
            yield from (row for row in found if row[:3] not in pulled)
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"routes.{route}.cold_tier.path: cannot be read: {error}") from error


def _by_hour(state: TierState, window: DueWindow) -> dict[int, list[str]]:
    """Return the files of each hour that overlaps the window."""
    found: dict[int, list[str]] = {}
    for file in state.files:
        begin_ms, end_ms = range_of(file)
        is_over = window.from_ms is not None and end_ms <= window.from_ms
        is_to_come = window.to_ms is not None and begin_ms > window.to_ms
        if not (is_over or is_to_come):
            found.setdefault(begin_ms, []).append(file)
    return found


def _pulled(log: ColdLog, state: TierState) -> set[tuple[Any, ...]]:
    """Return id, batch and generation of rows that are already back in the store."""
    if not state.pulled:
        return set()
    rows = _read(log, state.pulled, _COLUMNS[:3], None)
    return set(_tuples(rows))


def _read(log: ColdLog, files: list[str], columns: list[str], condition: Any) -> pa.Table:
    system, root = open_filesystem(log.root)
    paths = [f"{root}/{file}" for file in files]
    found = ds.dataset(paths, format="parquet", filesystem=system)
    return found.to_table(columns=columns, filter=condition)


def _filter(envelope_id: str, window: DueWindow) -> Any:
    """Return the filter on rows."""
    condition = pc.field("id") == envelope_id if envelope_id else pc.scalar(True)
    bounds = ((window.from_ms, pc.greater_equal), (window.to_ms, pc.less_equal))
    for bound_ms, compare in bounds:
        if bound_ms is not None:
            condition &= compare(pc.field("due_at_ms"), bound_ms)
    return condition


def _tuples(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)
