"""`duebridge run` in a process of its own, whose queue in memory has messages from the start.

    python seeded_run.py QUEUE COUNT run --config FILE ...

The numbers of messages that are settled go to standard output, one a line.
"""

import sys
import threading

from duebridge.cli import main
from duebridge.ports.source import Arrival
from duebridge_connectors.memory import MemoryQueue


def seeded(name: str, count: int) -> MemoryQueue:
    queue = MemoryQueue.named(name)
    queue.put(
        *(
            Arrival(b"body", id=f"m-{number}", headers=(("x-delay", 3_600_000),))
            for number in range(count)
        )
    )
    return queue


def report(queue: MemoryQueue) -> None:
    settled = 0
    while queue.all_are_settled(settled + 1, 3600):
        settled = len(queue.settled)
        sys.stdout.write(f"{settled}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    name, count, *words = sys.argv[1:]
    queue = seeded(name, int(count))
    threading.Thread(target=report, args=(queue,), daemon=True).start()
    sys.argv = ["duebridge", *words]
    sys.exit(main())
