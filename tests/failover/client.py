"""A producer process: threads that schedule, cancel and reschedule until the input ends.

python -m tests.failover.client CONFIG HOME SEED
"""

import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from duebridge.envelope import Envelope
from duebridge.errors import StoreError, StoreUnavailable
from duebridge.producer import Producer
from tests.failover.judgement import REFUSED
from tests.support.model.histories import Historian, HistoryEvent, Phase, Subject, now_ms

ROUTE = "failover"
THREADS, BATCH, EVERY_S = 4, 20, 0.1  # some 600 envelopes a second
FAR_MS = 3_600_000  # not due in the run: it has to be in the store at the end
KNOWN_S = 1.0  # so long after its schedule an envelope is cancelled or moved: replicas have it


class Caller(threading.Thread):
    """One thread, with a connection and a history of its own."""

    def __init__(self, config: Path, home: Path, seed: str, name: str, stop: Any) -> None:
        super().__init__(name=name)
        self._producer = Producer.from_config(config)
        self._history = Historian(home, name)
        self._random = random.Random(f"{seed}{name}")
        self._ended = stop
        self._known: deque[tuple[float, str]] = deque()  # since, id

    def run(self) -> None:
        for first in count(0, BATCH):
            if self._ended.wait(EVERY_S):
                return
            self._schedule(first)
            self._change_known()

    def close(self) -> None:
        self._producer.close()
        self._history.close()

    def _schedule(self, first: int) -> None:
        batch = [
            Envelope.new(
                self._random.randbytes(40),
                id=f"{self.name}-{first + place:06}",
                delay=f"{self._delay_ms()}ms",
            )
            for place in range(BATCH)
        ]
        ids = [each.id for each in batch]
        self._note(Subject.SCHEDULE, Phase.INVOKE, ids)
        try:
            receipts = self._producer.schedule_many(ROUTE, batch)
        except StoreError as error:
            self._note(Subject.SCHEDULE, Phase.INFO, ids, _said(error))
            return
        at_ms = now_ms()
        self._history.write(
            HistoryEvent(at_ms, Subject.SCHEDULE, Phase.OK, each.id, each.due_at_ms, each.status)
            for each in receipts
        )
        since = time.monotonic()
        late = [each.id for each in receipts if each.due_at_ms > at_ms + 2000 * KNOWN_S]
        self._known += [(since, each) for each in late]

    def _delay_ms(self) -> int:
        return self._random.choice((FAR_MS, *(self._random.randrange(300, 6000) for _ in "12")))

    def _change_known(self) -> None:
        """Cancel two, and move a third, that have been in the store for a while."""
        found = []
        while self._known and len(found) < 3 and self._known[0][0] < time.monotonic() - KNOWN_S:
            found.append(self._known.popleft()[1])
        for name in found[:2]:
            self._change(Subject.CANCEL, name, 0, partial(self._producer.cancel, ROUTE, name))
        for name in found[2:]:
            at = now_ms() + 6000  # later than it was, unless that was far
            move = partial(self._producer.reschedule, ROUTE, name, at=at)
            self._change(Subject.RESCHEDULE, name, at, move)

    def _change(self, subject: Subject, id: str, due_ms: int, call: Callable[[], str]) -> None:
        self._history.note(subject, Phase.INVOKE, id, due_at_ms=due_ms)
        try:
            phase, answer = Phase.OK, call()
        except StoreError as error:
            phase, answer = Phase.INFO, _said(error)
        self._history.note(subject, phase, id, due_at_ms=due_ms, answer=answer)

    def _note(self, subject: Subject, phase: Phase, ids: list[str], answer: str = "") -> None:
        at_ms = now_ms()
        self._history.write(
            HistoryEvent(at_ms, subject, phase, each, answer=answer) for each in ids
        )


def _said(error: StoreError) -> str:
    name = type(error).__name__
    return name if isinstance(error, StoreUnavailable) else f"{REFUSED}{name}: {error}"


def main(config: str, home: str, seed: str) -> None:
    stop = threading.Event()
    names = [f"client{number}" for number in range(THREADS)]
    callers = [Caller(Path(config), Path(home), seed, name, stop) for name in names]
    for each in callers:
        each.start()
    sys.stdin.read()
    stop.set()
    for each in callers:
        each.join()
        each.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
