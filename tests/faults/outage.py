"""A broker that is away for long under full load: what that may cost, and when it is over.

First it is frozen: it takes connections and answers nothing, so that windows fill and clients wait.
Then it is killed: whoever does not pace himself now knocks at its door as fast as it can. The route
allows one attempt, so that a single failure that is counted is a dead letter.
"""

import os
import signal
import time
from pathlib import Path

import msgspec

from tests.faults.judgement import SLOWER, Look, RunAccount
from tests.faults.rig import Rig, meanwhile, run_scenario
from tests.faults.scenario import Bound, Config, Result, Scenario
from tests.faults.servers.stack import Stack
from tests.support.model.histories import now_ms

PER_SECOND, SHORT_PER_SECOND = 1000, 500  # the former fills the windows before the deadline
LOOK_EVERY_S = 0.25
FIRST_FEW = 3  # connections beyond one a second that chance may bring
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SHORT_S = 60.0  # an outage below that has short deadlines, to see several of them
DRAINS_WITHIN_S = 600.0


class Outage(msgspec.Struct):
    """What was seen of one; instants are monotonic, memory is of the worker that stays."""

    deadline_s: float
    before_bytes: int = 0
    most_bytes: int = 0
    most_in_flight: int = 0
    stopped_after_s: float = 0.0
    left_after_s: float = 0.0
    alone_from: float = 0.0
    killed_at: float = 0.0
    ended_at: float = 0.0
    connected_at: list[float] = []

    def bounds(self, dead: int, stopped_in_s: float) -> list[Bound]:
        """Return each figure with its limit: R6, R7, R9 and R10 of the goals."""
        mib = (self.most_bytes - self.before_bytes) / 2**20
        return [
            Bound("worker memory grew by, MiB", round(mib, 1), 64),
            Bound("failures counted, each a dead letter", dead, 0),
            self._connected("frozen", self.alone_from, self.killed_at),
            self._connected("killed", self.killed_at, self.ended_at),
            Bound(
                "lane stopped after, s",
                round(self.stopped_after_s, 1),
                self.deadline_s + 5 * SLOWER,
            ),
            Bound("exit by SIGTERM, broker frozen, s", round(self.left_after_s, 1), 25),
            Bound("exit by SIGTERM, broker well, s", round(stopped_in_s, 1), 10),
            Bound("in flight, most, of two workers", self.most_in_flight),
        ]

    def _connected(self, broker: str, begin: float, end: float) -> Bound:
        """Bound how many connections a second one worker tried: one, but for the first few.

        Its delay of a second is random by a fifth, and the first try waits for none: that is much
        of a few seconds, and nothing of five minutes.
        """
        count = sum(begin <= at < end for at in self.connected_at)
        found, limit = count / (end - begin), 1 + FIRST_FEW / (end - begin)
        return Bound(
            f"connections tried a second, broker {broker}", round(found, 2), round(limit, 2)
        )


def note_most(rig: Rig, outage: Outage) -> None:
    """Note the most memory of the worker that stays, and the most in flight."""
    outage.most_bytes = max(outage.most_bytes, resident_bytes(rig.workers[0].pid))
    outage.most_in_flight = max(outage.most_in_flight, rig.in_flight())


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def run_outage(stack: Stack, broker: str, home: Path, seed: str, seconds: float) -> Result:
    """Return what came of an outage that is so long; its histories and logs stay in `home`."""
    is_short = seconds < SHORT_S
    deadline_s, lease_s = (2, 4) if is_short else (15, 30)
    per_second = SHORT_PER_SECOND if is_short else PER_SECOND
    outage = Outage(deadline_s)

    def arrange(rig: Rig, config: Config) -> None:
        config["worker"] = {"publish_deadline": f"{deadline_s}s"}
        config["defaults"]["lease"] = f"{lease_s}s"
        config["defaults"]["retry"]["max_attempts"] = 1

    scenario = Scenario(
        "outage",
        lambda rig: strike(rig, outage, seconds),
        through=frozenset({"broker"}),
        over_s=seconds,
        arrange=arrange,
        drains_within_s=DRAINS_WITHIN_S,
    )
    count = round(per_second * seconds)
    result = run_scenario(stack, scenario, broker, home, seed, count)
    return msgspec.structs.replace(result, size=f"{seconds:g} s")


def strike(rig: Rig, outage: Outage, seconds: float) -> Look:
    """Freeze the broker for half of the time, kill it for the rest, start it."""
    service = rig.side.service
    stays, leaves = rig.workers
    with rig.fault(f"broker frozen, then killed: away for {seconds:g} s") as fault:
        fault.silences(len(rig.workers))
        outage.before_bytes = resident_bytes(stays.pid)
        with meanwhile(lambda: note_most(rig, outage), LOOK_EVERY_S):
            began = time.monotonic()
            rig.stack.signal(service, signal.SIGSTOP)
            rig.see_logged(fault, '"lane_stopped"')
            outage.stopped_after_s = time.monotonic() - began
            outage.left_after_s = rig.seconds_to_leave(leaves)
            outage.alone_from = time.monotonic()
            rig.sleep_until(began + seconds / 2)
            outage.killed_at = time.monotonic()
            rig.stack.signal(service, signal.SIGKILL)
            rig.sleep_until(began + seconds)
            outage.ended_at = time.monotonic()
        outage.connected_at = list(rig.stack.links[service].connected_at)
        started_ms = now_ms()
        rig.stack.up(service)
        answered_ms = now_ms()

    def look(seen: RunAccount) -> list[Bound]:
        bounds = outage.bounds(len(seen.history.dead), rig.stopped_in_s)
        return [*bounds, seen.recovered(started_ms, answered_ms)]

    return look
