"""Any command of whichever duebridge is on the path; its broker writes down what it confirms.

python recording.py FILE --config duebridge.yaml run

At a first attempt the id of an envelope may decide: `fail-` fails, `reject-` is rejected, and
`hold-` never comes back, so that whoever kills the worker kills it with a lease. A dead letter is
confirmed.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import duebridge
from duebridge.cli import main
from duebridge.ports.publisher import Delivery, Outcome, Verdict
from duebridge_connectors.memory import MemoryPublisher

VERDICTS = {"fail": Verdict.FAILED, "reject": Verdict.REJECTED}


def decide(delivery: Delivery) -> Outcome | None:
    headers = dict(delivery.headers)
    if headers["x-attempt"] != "1" or "x-dlq-reason" in headers:
        return None
    word = delivery.id.partition("-")[0]
    if word == "hold":
        threading.Event().wait()
    return Outcome(VERDICTS[word], error_class="Recording") if word in VERDICTS else None


def record(file: int) -> None:
    """Have every publisher of this process write a line for each message that it confirms."""
    publish = MemoryPublisher.publish

    def recorded(self: MemoryPublisher, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        self.script(decide)
        outcomes = publish(self, batch)
        pairs = zip(batch, outcomes, strict=True)
        lines = [line(each) for each, outcome in pairs if outcome.verdict is Verdict.CONFIRMED]
        os.write(file, "".join(lines).encode())
        return outcomes

    MemoryPublisher.publish = recorded  # type: ignore[method-assign]


def line(delivery: Delivery) -> str:
    headers = dict(delivery.headers)
    fields = {
        "id": delivery.id,
        "topic": delivery.target.topic,
        "attempt": int(str(headers["x-attempt"])),
        "due_at_ms": int(str(headers["x-due-at"])),
        "at_ms": time.time_ns() // 1_000_000,
        "pid": os.getpid(),
        "code": str(Path(duebridge.__file__).parent.parent),
    }
    return json.dumps(fields) + "\n"


if __name__ == "__main__":
    record(os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    sys.exit(main())
