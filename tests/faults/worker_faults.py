"""Workers killed, frozen, stopped in order; clocks of half of them five minutes off."""

import json
import os
import signal
import subprocess
from datetime import datetime
from functools import partial
from glob import glob

from tests.faults.judgement import now_ms
from tests.faults.rig import Rig
from tests.faults.scenario import Scenario
from tests.support.checkout import missing

RESTARTS = 20
STOPS_WITHIN_S = 25
LIBRARY = "/usr/lib/*/faketime/libfaketimeMT.so.1"
LEAST_OFF_MS = 4 * 60_000


def kill(rig: Rig) -> None:
    victim = rig.workers[0]
    with rig.fault("worker killed") as fault:
        victim.kill()
        victim.wait()
        if rig.in_flight():
            rig.start_worker()
            rig.see_logged(fault, '"reclaimed"')


def freeze(rig: Rig) -> None:
    frozen = rig.workers[0]
    with rig.fault("worker frozen beyond its lease") as fault:
        rig.see(lambda: _stops_holding(rig, frozen))
        rig.start_worker()
        rig.see(lambda: rig.logged('"reclaimed"') > 0)
        frozen.send_signal(signal.SIGCONT)
        rig.see_logged(fault, '"lease_lost"')


def _stops_holding(rig: Rig, worker: "subprocess.Popen[bytes]") -> bool:
    """Stop it, but let it go on where it had just settled everything: that would be no fault."""
    worker.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
    if rig.in_flight():
        return True
    worker.send_signal(signal.SIGCONT)
    return False


def terminate(rig: Rig) -> None:
    with rig.fault("worker stopped by SIGTERM") as fault:
        rig.workers[0].terminate()
        if rig.workers[0].wait(STOPS_WITHIN_S) == 0 and rig.in_flight() == 0:
            fault.effect = "drained, exit 0, nothing left in unack"
        rig.start_worker()


def restart_all_the_time(rig: Rig) -> None:
    for number in range(RESTARTS):
        fresh = rig.start_worker()
        log = rig.home / f"worker-{len(rig.workers) - 1}.log"
        rig.see(lambda log=log: "started" in log.read_text())  # type: ignore[misc]
        with rig.fault(f"rolling restart {number + 1}") as fault:
            oldest = next(each for each in rig.workers if each.poll() is None)
            assert oldest is not fresh
            oldest.terminate()
            if oldest.wait(STOPS_WITHIN_S) == 0:
                fault.effect = "drained, exit 0"


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
        rig.start_worker(**clock)
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
    Scenario("worker_killed", kill, workers=1),
    Scenario("worker_frozen", freeze, workers=1),
    Scenario("worker_terminated", terminate, workers=1, may_repeat=False),
    Scenario("workers_restarted", restart_all_the_time, RESTARTS, may_repeat=False, over_s=15.0),
    Scenario("clocks_ahead", partial(skew, "+300"), may_repeat=False),
    Scenario("clocks_behind", partial(skew, "-300"), may_repeat=False),
]
