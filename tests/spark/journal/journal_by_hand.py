"""The journal's table without Spark: its rows, a table as version 0.2.0 left it, runs that die."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from duebridge_connectors.spark.files.location import FileLocation
from duebridge_connectors.spark.jobs import tidy
from duebridge_connectors.spark.table import journal_landed, tidy_merge
from duebridge_connectors.spark.table.journal_files import ROWS_SCHEMA, write_files
from duebridge_connectors.spark.table.journal_table import JournalTable, JournalVersion

QUERY = "bf457969-92c7-4b3b-962a-7a39ccf9ffab"
AT = datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)
BATCHES = 3
_STEPS: dict[str, tuple[Any, str]] = {
    "begun": (JournalTable, "begun"),
    "written": (sys.modules[__name__], "write_files"),
    "commit": (JournalVersion, "commit"),
    "rewritten": (journal_landed, "_rewritten"),
    "appended": (journal_landed, "_append"),
    "rows merged": (tidy_merge, "_merged"),
    "merge committed": (tidy_merge, "_commit"),
    "vacuumed": (DeltaTable, "vacuum"),
}


def journal_rows(ids: Iterable[str], route: str = "plain", at: datetime = AT) -> pa.RecordBatch:
    """Rows of kind accepted, each an entry of its own."""
    common = {"kind": "accepted", "at": at, "route": route, "shard": 0, "position": 0}
    rows = [
        {**common, "sequence": number, "id": name, "due_at": at, "lost_entries": 0}
        for number, name in enumerate(ids, 1)
    ]
    return pa.RecordBatch.from_pylist(rows, ROWS_SCHEMA)


def add_batch(
    root: FileLocation | str, number: int, ids: Iterable[str], query: str = QUERY
) -> None:
    """Append a batch as the job does, unless the table has it."""
    version = JournalTable(root).begun(query)
    if version.batch(query) < number:
        version.commit(query, number, list(write_files(root, AT.date(), [journal_rows(ids)])))


def ids(root: str) -> list[str]:
    """The ids of a table, with repetitions."""
    return sorted(DeltaTable(root).to_pyarrow_table(columns=["id"])["id"].to_pylist())


def on_disk(root: str) -> set[str]:
    return {str(each.relative_to(root)) for each in Path(root).glob("day=*/**/*.parquet")}


def named(root: str) -> set[str]:
    return {each.removeprefix(f"{root}/") for each in DeltaTable(root).file_uris()}


def leave_landed(root: str, parts: Sequence[tuple[date, str, pa.RecordBatch]], batch: int) -> None:
    """Write a table as version 0.2.0 did: INT96 instants, the route only in the folder's name."""
    files = []
    for number, (day, folder, rows) in enumerate(parts):
        path = Path(f"day={day}", f"route={folder}", f"part-{number:05}-{batch}.snappy.parquet")
        (Path(root) / path).parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_batches([rows]).drop_columns(["route"])
        pq.write_table(table, Path(root) / path, use_deprecated_int96_timestamps=True)
        size = (Path(root) / path).stat().st_size
        files.append({"path": str(path), "rows": rows.num_rows, "size_bytes": size})
    known = {"query": QUERY, "batch": batch, "complete_until_ms": 1000 + batch}
    text = json.dumps({"version": batch + 1, **known, "files": files, "retired": []})
    (Path(root) / "_manifests").mkdir(parents=True, exist_ok=True)
    (Path(root) / "_manifests" / f"{batch + 1:012}.json").write_text(text)


def append(root: str) -> None:
    """The job journal: some batches."""
    for number in range(BATCHES):
        add_batch(root, number, [f"a{number}", f"b{number}"])


def take_over(root: str) -> None:
    journal_landed.take_over(JournalTable(root))


def tidy_now(root: str) -> None:
    tidy.tidy(root, 0)


def killed(job: Callable[[str], None], root: str, step: str, call: int) -> None:
    """Run a job in a process that is killed when this call of a step has done its work."""
    processes = get_context("forkserver")
    processes.set_forkserver_preload([__name__])  # once; its children begin at once
    process = processes.Process(target=_run_until, args=(job, root, step, call))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL, f"{step} {call}: {process.exitcode}"


def _run_until(job: Callable[[str], None], root: str, step: str, call: int) -> None:
    place, name = _STEPS[step]
    real, left = getattr(place, name), [call]

    def counted(*given: Any, **options: Any) -> Any:
        done = real(*given, **options)
        if isinstance(done, Iterator):
            done = list(done)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(place, name, counted)
    job(root)
