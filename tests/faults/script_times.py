"""How long script calls held a server up, by its own clock: the slow log from 0.1 ms on.

What is quicker is left out: a script's own commands would be logged too, and that costs more than
they do. So a percentile is of the slower calls, and never less than that of all. A fork pauses the
server between two calls, so it is in no call's time.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from duebridge.bench.figures import percentile
from duebridge.store.scripts import names, script
from tests.faults.scenario import Bound

TAKE_SLOW = ("--slowlog-log-slower-than", "100", "--slowlog-max-len", "1000000")  # of redis-server
P999_MS, MOST_MS, SLOW_MS = 5.0, 50.0, 10.0

Times = Mapping[str, Sequence[float]]  # of each script, ms


def read_times(client: Any) -> Times:
    """Return those since the last time, and forget them."""
    by_sha = {script(name).sha.encode(): name for name in names()}
    times: dict[str, list[float]] = {}
    for entry in client.slowlog_get(-1):
        words = entry["command"].split(b" ", 2)
        if words[0] == b"EVALSHA":
            times.setdefault(by_sha[words[1]], []).append(entry["duration"] / 1000)
    client.slowlog_reset()
    return times


def time_bounds(times: Times) -> list[Bound]:
    """Return p99.9 of each script, and what the slowest of all may take."""
    rows = [
        Bound(f"{name}: p99.9 of {_said(found)}", share(found, 0.999), P999_MS)
        for name, found in sorted(times.items())
    ]
    every = [each for found in times.values() for each in found]
    slow = sum(each >= SLOW_MS for each in every)
    return [
        *rows,
        Bound("slowest call of all, ms", round(max(every), 2), MOST_MS),
        Bound(f"calls of {SLOW_MS:g} ms or more", slow, 0),
    ]


def _said(millis: Sequence[float]) -> str:
    shares = f"p50 {share(millis, 0.5)}, p99 {share(millis, 0.99)}"
    return f"{len(millis):,} calls of 0.1 ms or more, ms ({shares})"


def share(millis: Sequence[float], part: float) -> float:
    return round(percentile(sorted(millis), part), 2)


def put_first(pid: int) -> bool:
    """Let this server run before all else, as one with a core of its own would; False if refused.

    Here it shares two cores with brokers, workers and a JVM: without it, most of the slowest calls
    are calls in whose middle the server stood by.
    """
    policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK  # what rewrites its file stays one of many
    try:
        os.sched_setscheduler(pid, policy, os.sched_param(1))
    except PermissionError:
        return False
    return True


def core_times_s(pid: int) -> tuple[float, float]:
    """Return how long the server has run, and how long it stood by ready for want of a core."""
    ran_ns, waited_ns, _ = map(int, Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split())
    return ran_ns / 1e9, waited_ns / 1e9
