"""What a year of the cold tier costs its readers: `python -m tests.bench.spark.cold_year`.

A log as a year leaves it: a demote a night, a hydrate an hour, merges and sweeps as the jobs do
them. The files are real, with a few rows each. CPU is of this process, without its start.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa

from duebridge.config.models import HOUR_MS, ColdTier
from duebridge.store.due_window import ANY_TIME
from duebridge_connectors.spark.cold import cold_reader
from duebridge_connectors.spark.cold.commit_log import (
    DEMOTED,
    HYDRATED,
    REMOVED,
    ColdLog,
    Commit,
)
from duebridge_connectors.spark.cold.compaction import compact
from duebridge_connectors.spark.cold.parquet.files import new_file, write_table
from duebridge_connectors.spark.cold.parquet.row_groups import DUE
from duebridge_connectors.spark.cold.sweep import sweep
from duebridge_connectors.spark.rows.arrow import arrow_schema
from duebridge_connectors.spark.rows.schema import COLD

DAY_MS = 24 * HOUR_MS
BEGIN_MS = 20_000 * DAY_MS
HORIZON_MS = 7 * DAY_MS
SCHEMA = arrow_schema(COLD)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000, help="of each night's demote")
    parser.add_argument("--files", type=int, default=2, help="of each night's demote")
    parser.add_argument("--days", type=int, default=365)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        log = ColdLog(home, "cold")
        began = time.process_time()
        for day in range(given.days):
            night(log, day, given.rows, given.files)
        spent = time.process_time() - began
        state = log.state()
        rows = given.days * given.rows
        print(f"{given.days} nights of {rows:,} rows in all, their hydrates: {spent:.1f} s of CPU")
        paths = [path for path in Path(home).rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in paths)
        print(f"files that count {len(state.files)}, lists {len(state.pulled)},"
              f" spent {len(state.spent)}, entries of the log {len(log.numbers())},"
              f" on disk {len(paths)} of {size / 2**20:.0f} MiB")  # fmt: skip
        show("state()", log.state)
        known = f"b{given.days - 1}-{given.rows - 1}"
        for name in (known, "absent"):
            show(f"get {name}", lambda name=name: get(home, name))  # type: ignore[misc]
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            print(pool.submit(hydrate_memory, home, given.days).result())


def night(log: ColdLog, day: int, rows: int, files: int) -> None:
    """A night's demote, and the 24 hydrates after it."""
    now_ms = BEGIN_MS + day * DAY_MS
    drawn = random.Random(day)
    batch = f"b{day}"
    dues = sorted(
        now_ms + HORIZON_MS + drawn.randrange(365 * DAY_MS - HORIZON_MS) for _ in range(rows)
    )
    made = [
        {"id": f"{batch}-{number}", "batch": batch, "shard": number % 4, "due_at_ms": due,
         "scheduled_at_ms": now_ms, "expires_at_ms": 0, "remember_ms": 0, "generation": day,
         "content_hash": b"12345678", "blob": b"\0" + drawn.randbytes(200)}
        for number, due in enumerate(dues)
    ]  # fmt: skip
    parts = [pa.Table.from_pylist(made[number::files], SCHEMA) for number in range(files)]
    names = tuple(new_file(batch, part) for part in parts)
    for name, part in zip(names, parts, strict=True):
        write_table(log.root, name, part)
    log.commit(Commit(kind=DEMOTED, batch=batch, at_ms=now_ms, rows=rows, files=names))
    log.commit(Commit(kind=REMOVED, batch=batch, at_ms=now_ms, rows=rows))
    for hour in range(24):
        hydrate(log, day, hour)
    tidy(log, now_ms + DAY_MS)


def hydrate(log: ColdLog, day: int, hour: int) -> None:
    """What a hydrate does to the log; every fourth pulls a row."""
    at_ms = BEGIN_MS + day * DAY_MS + hour * HOUR_MS
    batch = f"h{day}-{hour}"
    taken = tuple(log.state().due_before(at_ms + HORIZON_MS))
    pulled: tuple[str, ...] = ()
    if hour % 4 == 0:
        pulled = (f"pulled={batch}/part-0.parquet",)
        key = {"batch": "b", "id": batch, "generation": 1, DUE: at_ms + 30 * DAY_MS}
        write_table(log.root, pulled[0], pa.Table.from_pylist([key]))
    log.commit(Commit(kind=HYDRATED, batch=batch, at_ms=at_ms, taken=taken, pulled=pulled))


def tidy(log: ColdLog, now_ms: int) -> None:
    """What demote and hydrate do at their end."""
    compact(log, now_ms, 1)
    sweep(log, now_ms, 1000)


def hydrate_memory(home: str, day: int) -> str:
    """Return how much memory the log costs a hydrate, in a process of its own."""
    before = peak_mib()
    hydrate(ColdLog(home, "cold"), day, 0)
    tidy(ColdLog(home, "cold"), BEGIN_MS + (day + 1) * DAY_MS)
    more = peak_mib() - before
    return f"memory of a hydrate's log, merge and sweep: {more} MiB, beside {before} of modules"


def peak_mib() -> int:
    """Return the most memory that this process had."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def get(home: str, name: str) -> None:
    tier = ColdTier(path=home, horizon="7d")
    found = [*cold_reader.read_cold_rows(tier, "cold", (name,), ANY_TIME)]
    assert len(found) == (name != "absent"), found


def show(what: str, call: Callable[[], object]) -> None:
    """Print the CPU of a call: the median of nine."""
    taken = []
    for _ in range(9):
        began = time.process_time()
        call()
        taken.append(1000 * (time.process_time() - began))
    print(f"{what}: {sorted(taken)[4]:.1f} ms of CPU")


if __name__ == "__main__":
    main()
