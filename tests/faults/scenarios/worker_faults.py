"""Workers killed, frozen, stopped, upgraded, short of files, with false clocks; ids reopened."""

import json
import resource
import signal
import subprocess
import time
from datetime import datetime
from functools import partial
from glob import glob

from duebridge.envelope import Envelope
from tests.faults.judgement import SLOWER, Look
from tests.faults.rig import WITHIN_S, Rig, hold
from tests.faults.scenario import RABBITMQ, Bound, Config, Scenario, unhurried
from tests.faults.scenarios.target_faults import open_missing
from tests.faults.traffic import ROUTE
from tests.support.checkout import missing
from tests.support.model.histories import now_ms
from tests.support.versions import previous

RESTARTS, WORKERS, ORDERS = 20, 2, 50
DRAIN_S, DEADLINE_S = 5, 1.3
FILES = resource.RLIMIT_NOFILE
LEAST_FILES, AWAY_S = 4, 10.0
COMMAND = """
import sys
from importlib.metadata import distribution
[command] = distribution("duebridge").entry_points.select(group="console_scripts")
sys.exit(command.load()())
"""
STOPS_WITHIN_S, HELD_S = 25, 20.0
LIBRARY = "/usr/lib/*/faketime/libfaketimeMT.so.1"
LEAST_OFF_MS = 4 * 60_000


def kill(rig: Rig) -> None:
    victim = rig.workers[0]
    with rig.fault("worker killed") as fault:
        rig.see(lambda: _stops_holding(rig, victim))
        victim.kill()
        victim.wait()
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
    """Stop it, but let it go on where it had just settled everything: that would be no fault.

    What it had sent by then is served after the first look, and before the second.
    """
    hold(worker)
    if rig.in_flight() and rig.in_flight():
        return True
    worker.send_signal(signal.SIGCONT)
    return False


def terminate(rig: Rig) -> None:
    with rig.fault("worker stopped by SIGTERM") as fault:
        rig.workers[0].terminate()
        if rig.workers[0].wait(STOPS_WITHIN_S) == 0 and rig.in_flight() == 0:
            fault.effect = "drained, exit 0, nothing left in unack"
        rig.start_worker()


def roll(rig: Rig, name: str, *program: str) -> None:
    """Start a worker, perhaps of another version; then the oldest one drains."""
    rig.start_workers(1, *program)
    with rig.fault(name) as fault:
        oldest = next(each for each in rig.workers if each.poll() is None)
        assert oldest is not rig.workers[-1]
        oldest.terminate()
        if oldest.wait(STOPS_WITHIN_S) == 0:
            fault.effect = "drained, exit 0"


def restart_all_the_time(rig: Rig) -> None:
    for number in range(RESTARTS):
        roll(rig, f"rolling restart {number + 1}")


def upgrade_and_back(rig: Rig) -> Look:
    """Go from the previous version to this one, and back, one worker after the other.

    On the way back some flights have this version's clock of `hold`: their target is missing.
    """
    old = (previous().python, "-c", COMMAND)
    rig.start_workers(WORKERS, *old)
    for number in range(WORKERS):
        roll(rig, f"rolling upgrade {number + 1}")
    began = time.monotonic()
    rig.producer.send("held", ORDERS, target=rig.targets["gone"], delay="0s")
    set_aside = rig.see(lambda: rig.store.poll()["retry"] >= ORDERS)
    for number in range(WORKERS):
        roll(rig, f"rolling way back {number + 1}", *old)
    rig.side.make(rig.targets["gone"])
    is_over = time.monotonic() - began > HELD_S
    return lambda seen: [
        Bound("set aside by this version: not all", int(not set_aside), 0),
        seen.missing("held", dead=is_over),
        seen.buried("held", HELD_S, WITHIN_S)[1],
    ]


def exhaust_files(rig: Rig) -> Look:
    with rig.fault("no file descriptors while the broker is away") as fault:
        rig.stack.signal("rabbitmq", signal.SIGKILL)
        rig.see(lambda: rig.logged('"lane_stopped"', fault.logged_bytes) > 0)
        usual = {each.pid: resource.prlimit(each.pid, FILES) for each in rig.workers}
        for pid, (_, hard) in usual.items():
            resource.prlimit(pid, FILES, (LEAST_FILES, hard))
        if rig.see(lambda: rig.logged("Too many open files") > 0, AWAY_S):
            fault.effect = "logged Too many open files"
        time.sleep(1)
        for pid, limits in usual.items():
            resource.prlimit(pid, FILES, limits)
        started_ms = now_ms()
        rig.stack.up("rabbitmq")
        answered_ms = now_ms()
    return lambda seen: [seen.recovered(started_ms, answered_ms)]


def many_shards(rig: Rig, config: Config) -> None:
    config["worker"]["drain"] = f"{DRAIN_S}s"
    config["routes"][ROUTE]["shards"] = 8


def stop_beside_silent_store(rig: Rig) -> None:
    """Stop a worker whose store takes calls and answers none."""
    (worker,) = rig.workers
    with rig.fault("SIGTERM, and the store silent") as fault:
        rig.stack.links["store"].hole()
        took_s = rig.seconds_to_leave(worker)
        fault.effect = f"exit {worker.wait()}"
        rig.stack.links["store"].heal()
    limit_s = DRAIN_S + DEADLINE_S + 2 * SLOWER
    rig.bounds.append(Bound("exit by SIGTERM, store silent, s", took_s, limit_s))
    rig.start_workers(1)


def remember(rig: Rig, config: Config) -> None:
    unhurried(rig, config)
    config["routes"][ROUTE]["remember"] = "1h"


def reopen(rig: Rig) -> Look:
    """Cancel, and schedule the same again: an answer that says so, or, if asked, a new life."""
    paid = [Envelope.new(b"paid", id=f"paid-{n}", delay="1h") for n in range(ORDERS)]
    first, again = (
        [Envelope.new(b"again", id=f"again-{n}", delay=delay) for n in range(ORDERS)]
        for delay in ("1h", "1s")
    )
    rig.producer.schedule(ROUTE, paid)
    rig.producer.plain.schedule_many(ROUTE, first)
    cancelled = [rig.producer.cancel(each.id) for each in paid]
    cancelled += [rig.producer.plain.cancel(ROUTE, each.id) for each in first]
    told = [each.status for each in rig.producer.plain.schedule_many(ROUTE, paid)]
    made = [each.status for each in rig.producer.schedule(ROUTE, again, on_conflict="replace")]
    return lambda seen: [
        Bound("not cancelled", 2 * ORDERS - cancelled.count("cancelled"), 0),
        Bound("again: not told of the cancel", ORDERS - told.count("cancelled"), 0),
        Bound("replaced: not told so", ORDERS - made.count("replaced"), 0),
        seen.missing("again"),
    ]


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


ONE_MISSING = partial(open_missing, ("gone",), f"{HELD_S:g}s")
ROLLED = {"workers": 0, "may_repeat": False, "may_count": False, "may_bury": True, "over_s": 8.0}
SILENT = {"workers": 1, "through": frozenset({"store"}), "arrange": many_shards}
SCENARIOS = [
    Scenario("worker_killed", kill, workers=1),
    Scenario("worker_frozen", freeze, workers=1),
    Scenario("worker_terminated", terminate, workers=1, may_repeat=False),
    Scenario("workers_restarted", restart_all_the_time, RESTARTS, may_repeat=False, over_s=15.0),
    Scenario("clocks_ahead", partial(skew, "+300"), may_repeat=False),
    Scenario("clocks_behind", partial(skew, "-300"), may_repeat=False),
    Scenario("upgraded_and_back", upgrade_and_back, 2 * WORKERS, arrange=ONE_MISSING, **ROLLED),
    Scenario("files_exhausted", exhaust_files, brokers=RABBITMQ),
    Scenario("stopped_beside_silent_store", stop_beside_silent_store, **SILENT),
    Scenario("reopened", reopen, 0, may_repeat=False, arrange=remember),
]
