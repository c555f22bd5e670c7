"""Workers killed, frozen, stopped in order."""

import os
import signal
import subprocess

from tests.faults.rig import Rig
from tests.faults.scenario import Scenario

RESTARTS = 20
STOPS_WITHIN_S = 25


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


SCENARIOS = [
    Scenario("worker_killed", kill, workers=1),
    Scenario("worker_frozen", freeze, workers=1),
    Scenario("worker_terminated", terminate, workers=1, may_repeat=False),
    Scenario("workers_restarted", restart_all_the_time, RESTARTS, may_repeat=False, over_s=15.0),
]
