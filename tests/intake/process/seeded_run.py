"""`duebridge run` in a process of its own, whose queue in memory has messages from the start.

    python seeded_run.py QUEUE COUNT DELAY_MS run --config FILE ...

The numbers of messages that are settled go to standard output, one a line.
"""

import sys
import threading

from duebridge.cli import main
from duebridge.ports.source import Arrival
from duebridge_connectors.memory import MemoryQueue


def seeded(name: str, count: int, delay_ms: int) -> MemoryQueue:
    queue = MemoryQueue.named(name)
    headers = (("x-delay", delay_ms),)
    queue.put(*(Arrival(b"body", id=f"m-{number}", headers=headers) for number in range(count)))
    return queue


def report(queue: MemoryQueue) -> None:
    settled = 0
    while queue.all_are_settled(settled + 1, 3600):
        settled = len(queue.settled)
        sys.stdout.write(f"{settled}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    name, count, delay_ms, *words = sys.argv[1:]
    queue = seeded(name, int(count), int(delay_ms))
    threading.Thread(target=report, args=(queue,), daemon=True).start()
    sys.argv = ["duebridge", *words]
    sys.exit(main())
