"""Either broker killed or frozen beyond the publish deadline."""

import signal
import time

from tests.faults.rig import LEASE_S, Rig
from tests.faults.scenario import Scenario


def kill(rig: Rig) -> None:
    with rig.fault("broker killed") as fault:
        rig.stack.signal(rig.side.service, signal.SIGKILL)
        rig.see_logged(fault, '"lane_stopped"')
        rig.stack.up(rig.side.service)


def freeze(rig: Rig) -> None:
    name = "broker frozen beyond the publish deadline and a lease"
    with rig.fault(name) as fault, rig.stack.frozen(rig.side.service):
        until = time.monotonic() + LEASE_S
        rig.see_logged(fault, '"lane_stopped"')
        rig.see(lambda: time.monotonic() > until)


SCENARIOS = [
    Scenario("broker_killed", kill),
    Scenario("broker_frozen", freeze),
]
