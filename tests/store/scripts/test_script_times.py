"""`duebridge bench --only scripts`: which calls are timed, with small and with large bodies."""

from types import SimpleNamespace
from typing import Any

from duebridge.bench.meter import CallCounter, Meter
from duebridge.bench.script_times import measure_scripts
from duebridge.store.server.connection import Connection
from tests.support.desk import Desk

TIMED = {"schedule", "replace", "next", "promote", "claim", "retry", "release", "ack", "bury"}
TIMED |= {"drop", "cancel", "reschedule", "set_aside", "resume", "reclaim", "readdress", "shunt"}


def test_measure_of_scripts_times_each_with_small_and_large_bodies(server: Connection) -> None:
    desk = Desk(server, "bench")
    stage: Any = SimpleNamespace(
        connection=server,
        meter=Meter(server, CallCounter()),
        namespace=lambda: "bench",
        store=lambda _: desk.again(has_dead_letter=False, now_ms=None),
        delete=lambda _: None,
    )
    rows = {row.what: row.figures for row in measure_scripts(stage, 2)}
    assert set(rows) == TIMED | {f"{name} of 256 KiB" for name in TIMED}
    assert all(figures["p50_ms"] > 0 for figures in rows.values())
    found = desk.snapshot()
    assert not found["unack"], "everything that was claimed is settled"
    assert not found["dead"]
    assert len(found["ready"]) + len(found["pending"]) < 10
