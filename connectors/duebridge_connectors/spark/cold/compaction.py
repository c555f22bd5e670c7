"""Merges small files of a cold tier: nightly batches of a year become few files.

small files, without what has returned ─▶ one file, sorted by due ─▶ commit, if they still count
lists of pulled rows, without those that are past ─▶ one list, sorted by id ─▶ the same
lists of void rows ─▶ one of their own

Rows keep their batch, so what the store notes about copies stays true. Jobs merge while they have
the tier's lease, as they sweep: a merge that lost it does not count, since its files may have been
swept. Should a hydrate that lost its own commit after a merge of files it took, it is as
one killed before its commit: it runs again, and its rows are duplicates.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from duebridge_connectors.spark.cold.commit_log import COMPACTED, ColdLog, Commit
from duebridge_connectors.spark.cold.parquet.files import new_file, write_table
from duebridge_connectors.spark.cold.parquet.row_groups import (
    DUE,
    ID,
    WantedRows,
    read_groups,
    read_whole_groups,
)
from duebridge_connectors.spark.cold.parquet.slices import range_of, read_slice
from duebridge_connectors.spark.cold.tier_state import VOID_LIST, TierState
from duebridge_connectors.spark.filesystem import open_filesystem
from duebridge_connectors.spark.rows.arrow import arrow_schema
from duebridge_connectors.spark.rows.schema import COLD
from duebridge_connectors.spark.transforms.cold_copies import COPY, PULLED

FEW = 16  # small files, or lists, that are left as they are
SMALL_BYTES = 2 * 1024 * 1024
MERGED_BYTES = 4 * SMALL_BYTES  # of small files, for one
_NEVER_MS = 2**62
MEMORY_BYTES = 64 * 1024 * 1024  # of their rows


class CompactionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The number of small files and lists that were merged."""

    files: int = 0
    lists: int = 0


class _Tier(NamedTuple):
    """The files of a log, and what to note of a merge."""

    log: ColdLog
    now_ms: int
    check: Callable[[], None]
    files: Any
    root: str

    def commit(self, **change: Any) -> bool:
        commit = Commit(kind=COMPACTED, at_ms=self.now_ms, **change)
        return self.log.commit(commit, self.check)


def compact(
    log: ColdLog,
    now_ms: int,
    most: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> CompactionSummary:
    """Merge small files, up to `most` times. Raises `OSError` and `JobFailed`.

    `check` raises once the lease of the tier is lost.
    """
    tier, state = _Tier(log, now_ms, check, *open_filesystem(log.root)), log.state()
    merged = [_merge_files(tier, names) for names in _groups(tier, state)[:most]]
    return CompactionSummary(files=sum(merged), lists=_merge_lists(tier, state))


def _groups(tier: _Tier, state: TierState) -> list[list[str]]:
    """Return groups of small files that are to be one, neighbours by their first hour."""
    names = sorted(state.files, key=range_of)
    paths = [f"{tier.root}/{read_slice(name).file}" for name in names]
    infos = tier.files.get_file_info(paths)
    small = [
        (name, info.size)
        for name, info in zip(names, infos, strict=True)
        if info.size is not None and info.size < SMALL_BYTES
    ]
    if len(small) <= FEW:
        return []
    groups: list[list[str]] = []
    room = 0
    for name, size in small:
        if size > room:
            groups.append([])
            room = MERGED_BYTES
        groups[-1].append(name)
        room -= size
    return [group for group in groups if len(group) > 1]


def _merge_files(tier: _Tier, names: Sequence[str]) -> int:
    """Merge files as far as memory allows; return how many."""
    schema = arrow_schema(COLD)
    taken, parts = [], [schema.empty_table()]
    for name in names:
        if sum(part.nbytes for part in parts) >= MEMORY_BYTES:
            break
        parts += (part.cast(schema) for part in _rows(tier, name, schema.names))
        taken.append(name)
    rows = pa.concat_tables(parts).sort_by([(DUE, "ascending"), (ID, "ascending")])
    batch = f"merged-{uuid4().hex[:8]}"
    files = (_written(tier, new_file(batch, rows), rows),) if rows.num_rows else ()
    counts = tier.commit(batch=batch, rows=rows.num_rows, files=files, taken=tuple(taken))
    return len(taken) if counts else 0


def _rows(tier: _Tier, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    file, from_ms, until_ms = read_slice(name)
    wanted = WantedRows(from_ms, until_ms)
    return read_groups(tier.files, f"{tier.root}/{file}", columns, wanted)


def _merge_lists(tier: _Tier, state: TierState) -> int:
    """Merge the lists of pulled rows, and apart from them those of void rows; return how many."""
    if len(state.pulled) <= FEW:
        return 0
    first_ms = min((range_of(name).from_ms for name in state.known), default=tier.now_ms)
    batch = f"merged-{uuid4().hex[:8]}"
    void = state.void
    others = [file for file in state.pulled if file not in void]
    kinds = {"part-0.parquet": others, VOID_LIST: void}
    found = {name: _unexpired(tier, files, first_ms) for name, files in kinds.items()}
    counts = tier.commit(
        batch=batch,
        rows=sum(rows.num_rows for rows in found.values()),
        pulled=tuple(
            _written(tier, f"pulled={batch}/{name}", rows)
            for name, rows in found.items()
            if rows.num_rows
        ),
        merged=tuple(state.pulled),
    )
    return len(state.pulled) if counts else 0


def _unexpired(tier: _Tier, lists: Sequence[str], first_ms: int) -> pa.Table:
    """Return the rows of lists that a file may still have, sorted by id."""
    empty = _pulled_schema().empty_table()
    keys = pa.concat_tables([empty, *(part for file in lists for part in _keys(tier, file))])
    return keys.filter(pc.greater_equal(keys.column(DUE), first_ms)).sort_by(ID)


def _pulled_schema() -> pa.Schema:
    schema = arrow_schema(COLD)
    return pa.schema([schema.field(name) for name in PULLED])


def _keys(tier: _Tier, file: str) -> Iterator[pa.Table]:
    """Yield pulled rows; those of version 0.2 have no due instant, and are kept."""
    wanted = _pulled_schema()
    for part in read_whole_groups(tier.files, f"{tier.root}/{file}"):
        keys = part.select(COPY)
        never = pa.array([_NEVER_MS] * part.num_rows, pa.int64())
        due = part.column(DUE) if DUE in part.schema.names else never
        yield keys.append_column(DUE, due).cast(wanted)


def _written(tier: _Tier, file: str, rows: pa.Table) -> str:
    write_table(tier.log.root, file, rows)
    return file
