"""A worker whose client hangs as `sys.argv[1]` says, in that method, and that tells its stalls.

The line `drained` says beside its `took_s` for how long the whole process stood meanwhile, as it
does on a busy machine: that is no delay of the code under test.
"""

import sys
import threading
import time
from importlib.metadata import distribution
from typing import Any

from duebridge.worker import drain
from duebridge_connectors.memory import MemoryPublisher

TICK_S = 0.01


class Stalls:
    """The ends of the pauses in which no thread of the process ran, and their seconds."""

    def __init__(self) -> None:
        self._found: list[tuple[float, float]] = []
        threading.Thread(target=self._run, name="stalls", daemon=True).start()

    def _run(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(TICK_S)
            now = time.monotonic()
            if now - before > 2 * TICK_S:
                self._found.append((now, now - before - 2 * TICK_S))
            before = now

    def since(self, instant: float) -> float:
        return sum(seconds for ended_at, seconds in self._found if ended_at > instant)


class Log:
    """The log of `duebridge.worker.drain`; adds the stalls to what says how long it took."""

    def __init__(self, within: Any, stalls: Stalls) -> None:
        self._within, self._stalls = within, stalls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._within, name)

    def info(self, event: str, **fields: Any) -> None:
        if "took_s" in fields:
            fields["stood_s"] = self._stalls.since(time.monotonic() - fields["took_s"])
        self._within.info(event, **fields)


def hang(*_: object) -> None:
    drain.log.info("hangs")
    threading.Event().wait()


if __name__ == "__main__":
    drain.log = Log(drain.log, Stalls())
    if hanging := sys.argv.pop(1):
        setattr(MemoryPublisher, hanging, hang)
    [command] = distribution("duebridge").entry_points.select(group="console_scripts")
    sys.exit(command.load()())
