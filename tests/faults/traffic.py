"""A producer under test: seeded envelopes, cancels and reschedules, every call in its history."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

import msgspec

from duebridge.audit import HistoryEvent, Op, Phase, fingerprint
from duebridge.envelope import Envelope, EnvelopeFields
from duebridge.errors import StoreFull, StoreUnavailable
from duebridge.producer import Producer
from tests.faults.judgement import Historian, now_ms

ROUTE = "faults"
BATCH = 100
BURST_MS = 300  # due instants come in bursts, so that a fault finds messages under way
CANCELS, RESCHEDULES = 2, 2  # of each batch


class Traffic(threading.Thread):
    """Schedules `count` envelopes in `over_s` seconds, all due soon, and goes on until `finish`."""

    def __init__(
        self,
        producer: Producer,
        history: Historian,
        seed: str,
        at_least: int,
        over_s: float,
        fields: Callable[[int], EnvelopeFields],
    ) -> None:
        super().__init__(name="traffic", daemon=True)
        self._producer, self._history = producer, history
        self._random = random.Random(seed)
        self._seed, self._count, self._over_s = seed, at_least, over_s
        self._fields = fields
        self._finish, self._stop_now = threading.Event(), threading.Event()
        self.refused = 0
        self.error: Exception | None = None

    def run(self) -> None:
        began = time.monotonic()
        try:
            for first in count(0, BATCH):
                if first >= self._count and self._finish.is_set():
                    return
                self._turn(first)
                behind_s = time.monotonic() - began - self._over_s * first / self._count
                if self._stop_now.wait(max(0.0, -behind_s)):
                    return
        except Exception as error:  # told by whoever joins us
            self.error = error

    def finish(self) -> None:
        """End once `count` envelopes were scheduled."""
        self._finish.set()

    def stop(self) -> None:
        """End now."""
        self._stop_now.set()

    def _turn(self, first: int) -> None:
        batch = [self._envelope(place) for place in range(first, first + BATCH)]
        if not self._schedule(batch):
            return
        chosen = [each.id for each in self._random.sample(batch, CANCELS + RESCHEDULES)]
        for each in chosen[:CANCELS]:
            self._change(Op.CANCEL, each, 0, partial(self._producer.cancel, ROUTE, each))
        for each in chosen[CANCELS:]:
            due_ms = now_ms() + self._random.randrange(300, 1500)
            call = partial(self._producer.reschedule, ROUTE, each, at=due_ms)
            self._change(Op.RESCHEDULE, each, due_ms, call)

    def _envelope(self, place: int) -> Envelope:
        is_big = place % 50 == 0
        body = b"%d " % place + self._random.randbytes(3000 if is_big else 40)
        return Envelope.new(
            body,
            **self._due(place),
            id=f"{self._seed}:{place}",
            headers={"n": str(place)},
            **self._fields(place),
        )

    def _due(self, place: int) -> EnvelopeFields:
        """A delay, or in turn an instant that many share."""
        bursts = self._random.randrange(1, 4)
        if place % 2:
            return {"delay": f"{200 + bursts * BURST_MS}ms"}
        return {"at": (now_ms() // BURST_MS + 1 + bursts) * BURST_MS}

    def _schedule(self, batch: Sequence[Envelope]) -> bool:
        at_ms = now_ms()
        self._history.write(
            HistoryEvent(at_ms, Op.SCHEDULE, Phase.INVOKE, each.id, fingerprint=_print_of(each))
            for each in batch
        )
        try:
            receipts = self._producer.schedule_many(ROUTE, batch)
        except StoreFull:
            phase, self.refused = Phase.FAIL, self.refused + len(batch)
        except StoreUnavailable:
            phase = Phase.INFO
        else:
            at_ms = now_ms()
            self._history.write(
                HistoryEvent(at_ms, Op.SCHEDULE, Phase.OK, each.id, each.due_at_ms, each.status)
                for each in receipts
            )
            return True
        self._history.write(HistoryEvent(now_ms(), Op.SCHEDULE, phase, each.id) for each in batch)
        return False

    def _change(self, op: Op, id: str, due_ms: int, call: Callable[[], str]) -> None:
        self._history.note(op, Phase.INVOKE, id, due_at_ms=due_ms)
        try:
            phase, answer = Phase.OK, call()
        except (StoreUnavailable, StoreFull) as error:
            phase, answer = Phase.INFO, type(error).__name__
        self._history.note(op, phase, id, due_at_ms=due_ms, answer=answer)


def _print_of(envelope: Envelope) -> str:
    properties = msgspec.structs.asdict(envelope.properties)
    return fingerprint(envelope.body, envelope.key, envelope.headers, properties)
