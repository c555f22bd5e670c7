"""The store killed, restarted, frozen, full, flushed of its scripts, rid of its clients."""

import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tests.faults.judgement import SLOWER
from tests.faults.rig import LEASE_S, Fault, Rig
from tests.faults.scenario import Bound, Scenario

EXIT_UNFIT = 3
CLAIMED_WITHIN_S = 5 * SLOWER
TIMES = 5


def stop_and_start(number: signal.Signals, rig: Rig) -> None:
    with rig.fault(f"store stopped by {number.name}") as fault:
        rig.stack.signal("redis", number)
        rig.see_logged(fault, '"store_unavailable"')
        note_what_it_had(rig, fault)
        rig.stack.up("redis")
    see_claim(rig)


def note_what_it_had(rig: Rig, fault: Fault) -> None:
    """Note how many a store that stands still has in flight: some were claimed after the look."""
    fault.note(rig.store.unacked_on_disk(rig.stack.data("redis"), rig.home))


def see_claim(rig: Rig) -> None:
    """Note how long after the store's answer the first claim was made: R6 of the goals."""
    answered_at, before = time.monotonic(), claims(rig)
    rig.see(lambda: claims(rig) > before)
    after_s = round(time.monotonic() - answered_at, 1)
    rig.bounds.append(Bound("until a claim, the store back, s", after_s, CLAIMED_WITHIN_S))


def claims(rig: Rig) -> int:
    return int(rig.store.client.hget(rig.store.shards[0].shard.key("meta"), "claims") or 0)


def freeze(rig: Rig) -> None:
    with rig.fault("store frozen for two leases") as fault, rig.stack.frozen("redis"):
        until = time.monotonic() + 2 * LEASE_S
        rig.see_logged(fault, '"store_unavailable"')
        note_what_it_had(rig, fault)
        rig.see(lambda: time.monotonic() > until)


def flush_scripts(rig: Rig) -> None:
    def misses() -> int:
        return int(
            rig.store.client.info("errorstats").get("errorstat_NOSCRIPT", {}).get("count", 0)
        )

    for _ in range(TIMES):
        with rig.fault("scripts flushed") as fault:
            before = misses()
            rig.store.client.script_flush()
            rig.take(fault, "NOSCRIPT was answered", lambda before=before: misses() > before)  # type: ignore[misc]


def kill_clients(rig: Rig) -> None:
    for _ in range(TIMES):
        rig.see(lambda: len(rig.store.client.client_list(_type="normal")) > rig.scenario.workers)
        with rig.fault("every client of the store killed") as fault:
            killed = rig.store.client.client_kill_filter(_type="normal", skipme=True)
            if killed >= rig.scenario.workers:
                fault.effect = f"{killed} connections ended"


@contextmanager
def configured(rig: Rig, name: str, value: str, usual: str) -> Iterator[None]:
    rig.store.client.config_set(name, value)
    try:
        yield
    finally:
        rig.store.client.config_set(name, usual)


def fill(rig: Rig) -> None:
    with rig.fault("store out of memory") as fault, configured(rig, "maxmemory", "1", "0"):
        rig.take(fault, "schedule was refused", lambda: rig.traffic.producer.refused > 0)


def fill_disk(rig: Rig) -> None:
    pid = rig.stack.state("redis")["pid"]
    files = (rig.stack.data("redis") / "appendonlydir").glob("*.incr.aof")
    with rig.fault("disk full for the append-only file") as fault:
        limit_bytes = max(file.stat().st_size for file in files) + 1
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
        try:
            rig.see(lambda: rig.store.client.info("persistence")["aof_last_write_status"] == "err")
            rig.see_logged(fault, "MISCONF")
        finally:
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)


def change_policy(rig: Rig) -> None:
    policies = ("maxmemory-policy", "allkeys-lru", "noeviction")
    with rig.fault("eviction policy changed") as fault, configured(rig, *policies):
        if rig.start_worker().wait(20) == EXIT_UNFIT:
            fault.effect = "a worker refused to start, exit 3"


SCENARIOS = [
    Scenario("store_killed", partial(stop_and_start, signal.SIGKILL)),
    Scenario("store_restarted", partial(stop_and_start, signal.SIGTERM)),
    Scenario("store_frozen", freeze),
    Scenario("store_scripts_flushed", flush_scripts, TIMES, may_repeat=False),
    Scenario("store_clients_killed", kill_clients, TIMES),
    Scenario("store_full", fill),
    Scenario("store_disk_full", fill_disk),
    Scenario("store_policy_changed", change_policy, may_repeat=False),
]
