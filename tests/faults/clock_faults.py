"""Clocks of half the workers five minutes off, ahead or behind: only the store's clock decides."""

import json
from datetime import datetime
from functools import partial
from glob import glob

from tests.conftest import missing
from tests.faults.histories import now_ms
from tests.faults.rig import Rig
from tests.faults.scenario import Scenario

LIBRARY = "/usr/lib/*/faketime/libfaketimeMT.so.1"
LEAST_OFF_MS = 4 * 60_000


def library() -> str | None:
    """Return where libfaketime is, if it is installed."""
    return next(iter(glob(LIBRARY)), None)


def skew(offset: str, rig: Rig) -> None:
    """Start as many workers with a false clock; the others then end, and the false ones deliver."""
    preloaded = library() or missing("libfaketime", "apt-get install faketime")
    clock = {"LD_PRELOAD": preloaded, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    right = list(rig.workers)
    first = len(right)
    for _ in right:
        rig.start_worker(clock)
    rig.see(lambda: rig.logged('"started"') == 2 * len(right))
    with rig.fault(f"clocks of half the workers {offset}") as fault:
        for worker in right:
            worker.terminate()
        for worker in right:
            worker.wait(20)
        off_ms = [_off_ms(rig, number) for number in range(first, len(rig.workers))]
        if min(off_ms) > LEAST_OFF_MS:
            rig.take(fault, f"{off_ms} ms off, and delivering", lambda: rig.in_flight() > 0)


def _off_ms(rig: Rig, number: int) -> int:
    """How far a worker's clock is off, by the first line that it logged, at the least."""
    line = (rig.home / f"worker-{number}.log").read_text().splitlines()[0]
    logged = datetime.fromisoformat(json.loads(line)["timestamp"])
    return abs(int(logged.timestamp() * 1000) - now_ms())


SCENARIOS = [
    Scenario("clocks_ahead", partial(skew, "+300"), may_repeat=False),
    Scenario("clocks_behind", partial(skew, "-300"), may_repeat=False),
]
