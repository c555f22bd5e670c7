"""Runs the intake of a configuration on a slow store until it has stored so many messages.

python -m tests.intake.process.intake_hoarder CONFIG COUNT CALL_S

Prints by how many MiB its memory grew, and the most seconds that it stood still. Each call of the
store that schedules takes `CALL_S` seconds more.
"""

import sys
import threading
import time
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY

from duebridge.config.load import load_config
from duebridge.intake.process import IntakeRunner
from duebridge.runtime import tuned_gc
from duebridge.store.server.connection import Connection, Reply, open_connection
from duebridge.store.server.scripts import Script

WITHIN_S = 240.0
LOOK_EVERY_S = 0.05  # each look gathers every metric
MIB = 1024 * 1024
PAGE = 4096


class SlowConnection(Connection):
    """A connection whose schedule calls take longer."""

    def __init__(self, connection: Connection, call_s: float) -> None:
        super().__init__(connection.client)
        self._call_s = call_s
        self._never = threading.Event()

    def run(self, called: Script, *rest: Any, **named: Any) -> Reply:
        if called.name == "schedule":
            self._never.wait(self._call_s)
        return super().run(called, *rest, **named)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def stored() -> float:
    return REGISTRY.get_sample_value("duebridge_intake_accepted_total", {"intake": "in"}) or 0.0


def main(path: str, count: str, call_s: str) -> None:
    config = load_config(Path(path))
    connection = SlowConnection(open_connection(str(config.store.url)), float(call_s))
    with tuned_gc():
        runner = IntakeRunner(config, connection, ["in"])
        base, grown, still_s = resident(), 0, 0.0
        runner.start()
        give_up_at = time.monotonic() + WITHIN_S
        while stored() < int(count):
            assert time.monotonic() < give_up_at, f"{stored()} of {count} stored"
            grown = max(grown, resident() - base)
            still_s = max(still_s, runner.idle_s()["in"])
            time.sleep(LOOK_EVERY_S)  # between two samples
        assert runner.drain()
    sys.stdout.write(f"{grown // MIB} {still_s:.1f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
