"""`duebridge run` in a process of its own, whose queue in memory has messages from the start.

    python seeded_run.py QUEUE COUNT DELAY_MS [late] run --config FILE ...

The numbers of messages that are settled go to standard output, one a line. With `late` one more
comes, and is settled, just after the store was seen empty.
"""

import sys
import threading
from collections.abc import Iterable

from duebridge.admin.checks import drain_check
from duebridge.admin.operator import Operator
from duebridge.admin.route_stats import RouteStats
from duebridge.cli import main
from duebridge.ports.source import Arrival
from duebridge_connectors.memory import MemoryQueue


def seeded(name: str, count: int, delay_ms: int) -> MemoryQueue:
    queue = MemoryQueue.named(name)
    queue.put(*(message(number, delay_ms) for number in range(count)))
    return queue


def message(number: int, delay_ms: int) -> Arrival:
    return Arrival(b"body", id=f"m-{number}", headers=(("x-delay", delay_ms),))


def put_when_empty(queue: MemoryQueue, number: int, delay_ms: int) -> None:
    late = [message(number, delay_ms)]

    class LateOperator(Operator):
        def stats(self, routes: Iterable[str] = ()) -> list[RouteStats]:
            found = super().stats(routes)
            if late and not any(each.waiting for each in found):
                queue.put(late.pop())
                queue.all_are_settled(number + 1, 60)
            return found

    drain_check.Operator = LateOperator  # type: ignore[misc]


def report(queue: MemoryQueue) -> None:
    settled = 0
    while queue.all_are_settled(settled + 1, 3600):
        settled = len(queue.settled)
        sys.stdout.write(f"{settled}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    name, count, delay_ms, *words = sys.argv[1:]
    queue = seeded(name, int(count), int(delay_ms))
    if words[0] == "late":
        put_when_empty(queue, int(count), int(delay_ms))
        words.pop(0)
    threading.Thread(target=report, args=(queue,), daemon=True).start()
    sys.argv = ["duebridge", *words]
    sys.exit(main())
