"""Any command of whichever duebridge is on the path; its broker writes down what it confirms.

python recording.py FILE --config duebridge.yaml run

At a first attempt the id of an envelope may decide: `fail-` fails, `reject-` is rejected, `hold-`
never comes back, so that whoever kills the worker kills it with a lease, and `kill-` kills the
worker. A dead letter is confirmed.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import distribution
from types import ModuleType
from typing import Any


def memory() -> ModuleType:
    """The memory broker's module, as any version of duebridge names it."""
    names = ("duebridge_connectors.memory.publisher", "duebridge_connectors.memory")
    for name in (*names, "connectors.memory.publisher"):
        with suppress(ImportError):
            return import_module(name)
    raise ImportError("no memory broker")


MODULE = memory()
MemoryPublisher, Outcome, Verdict = MODULE.MemoryPublisher, MODULE.Outcome, MODULE.Verdict
VERDICTS = {"fail": Verdict.FAILED, "reject": Verdict.REJECTED}


def decide(delivery: Any) -> Any:
    headers = dict(delivery.headers)
    if headers["x-attempt"] != "1" or "x-dlq-reason" in headers:
        return None
    word = delivery.id.partition("-")[0]
    if word == "hold":
        threading.Event().wait()
    if word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome(VERDICTS[word], error_class="Recording") if word in VERDICTS else None


def record(file: int) -> None:
    """Have every publisher of this process write a line for each message that it confirms."""
    publish = MemoryPublisher.publish

    def recorded(self: Any, batch: Sequence[Any]) -> Any:
        self.script(decide)
        outcomes = publish(self, batch)
        pairs = zip(batch, outcomes, strict=True)
        lines = [line(each) for each, outcome in pairs if outcome.verdict is Verdict.CONFIRMED]
        os.write(file, "".join(lines).encode())
        return outcomes

    MemoryPublisher.publish = recorded


def line(delivery: Any) -> str:
    headers = dict(delivery.headers)
    fields = {
        "id": delivery.id,
        "topic": delivery.target.topic,
        "attempt": int(str(headers["x-attempt"])),
        "due_at_ms": int(str(headers["x-due-at"])),
        "at_ms": time.time_ns() // 1_000_000,
        "pid": os.getpid(),
        "code": str(MODULE.__file__),
    }
    return json.dumps(fields) + "\n"


if __name__ == "__main__":
    record(os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    [command] = distribution("duebridge").entry_points.select(group="console_scripts")
    sys.exit(command.load()())
