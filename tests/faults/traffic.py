"""A producer under test: seeded envelopes, cancels and reschedules, every call in its history."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Unpack

import msgspec

from duebridge.audit import fingerprint
from duebridge.envelope import Envelope, EnvelopeFields, Target
from duebridge.errors import StoreFull, StoreUnavailable
from duebridge.producer import OnConflict, Producer
from duebridge.receipt import Receipt
from tests.support.model.histories import Historian, HistoryEvent, Phase, Subject, now_ms

ROUTE = "faults"
BATCH = 100
BURST_MS = 300  # due instants come in bursts, so that a fault finds messages under way
CANCELS, RESCHEDULES = 2, 2  # of each batch


class NotedProducer:
    """A producer whose every call is in its history; for one thread."""

    def __init__(self, config: Path, home: Path, name: str) -> None:
        self.plain = Producer.from_config(config)  # what it is asked is in no history
        self._history = Historian(home, name)
        self.refused = 0

    def send(
        self,
        word: str,
        count: int,
        route: str = ROUTE,
        *,
        target: dict[str, str] | None = None,
        body_bytes: int = 40,
        **fields: Unpack[EnvelopeFields],
    ) -> list[str]:
        """Schedule so many whose ids begin with this word, and return the ids."""
        own = None if target is None else Target(**target)
        ids = [f"{word}-{number:05}" for number in range(count)]
        for first in range(0, count, 1000):
            self.schedule(
                route,
                [
                    Envelope.new(random.randbytes(body_bytes), id=each, target=own, **fields)
                    for each in ids[first : first + 1000]
                ],
            )
        return ids

    def schedule(
        self, route: str, batch: Sequence[Envelope], *, on_conflict: OnConflict = "refuse"
    ) -> Sequence[Receipt]:
        """Return the receipts; none where the store refused, or did not answer."""
        self._history.write(
            HistoryEvent(
                now_ms(), Subject.SCHEDULE, Phase.INVOKE, each.id, fingerprint=_print_of(each)
            )
            for each in batch
        )
        try:
            receipts = self.plain.schedule_many(route, batch, on_conflict=on_conflict)
        except StoreFull:
            phase, self.refused = Phase.FAIL, self.refused + len(batch)
        except StoreUnavailable:
            phase = Phase.INFO
        else:
            at_ms = now_ms()
            self._history.write(
                HistoryEvent(
                    at_ms, Subject.SCHEDULE, Phase.OK, each.id, each.due_at_ms, each.status
                )
                for each in receipts
            )
            return receipts
        self._history.write(
            HistoryEvent(now_ms(), Subject.SCHEDULE, phase, each.id) for each in batch
        )
        return ()

    def cancel(self, id: str, route: str = ROUTE) -> str:
        return self._change(Subject.CANCEL, id, 0, lambda: self.plain.cancel(route, id))

    def reschedule(self, id: str, due_ms: int, route: str = ROUTE) -> str:
        return self._change(
            Subject.RESCHEDULE, id, due_ms, lambda: self.plain.reschedule(route, id, at=due_ms)
        )

    def _change(self, subject: Subject, id: str, due_ms: int, call: Callable[[], str]) -> str:
        self._history.note(subject, Phase.INVOKE, id, due_at_ms=due_ms)
        try:
            phase, answer = Phase.OK, call()
        except (StoreUnavailable, StoreFull) as error:
            phase, answer = Phase.INFO, type(error).__name__
        self._history.note(subject, phase, id, due_at_ms=due_ms, answer=answer)
        return answer

    def close(self) -> None:
        self.plain.close()
        self._history.close()


class Traffic(threading.Thread):
    """Schedules `count` envelopes in `over_s` seconds, all due soon, and goes on until `finish`."""

    def __init__(
        self,
        producer: NotedProducer,
        seed: str,
        at_least: int,
        over_s: float,
        fields: Callable[[int], EnvelopeFields],
    ) -> None:
        super().__init__(name="traffic", daemon=True)
        self.producer = producer
        self._random = random.Random(seed)
        self._count, self._over_s = at_least, over_s
        self._fields = fields
        self._finish, self._stop_now = threading.Event(), threading.Event()
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
        """End once `count` envelopes were scheduled; raises what went wrong."""
        self._finish.set()
        self.join()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """End now."""
        self._stop_now.set()
        if self.is_alive():
            self.join()

    def _turn(self, first: int) -> None:
        batch = [self._envelope(place) for place in range(first, first + BATCH)]
        if not self.producer.schedule(ROUTE, batch):
            return
        chosen = [each.id for each in self._random.sample(batch, CANCELS + RESCHEDULES)]
        for each in chosen[:CANCELS]:
            self.producer.cancel(each)
        for each in chosen[CANCELS:]:
            self.producer.reschedule(each, now_ms() + self._random.randrange(300, 1500))

    def _envelope(self, place: int) -> Envelope:
        is_big = place % 50 == 0
        body = b"%d " % place + self._random.randbytes(3000 if is_big else 40)
        return Envelope.new(
            body,
            **self._due(place),
            id=f"traffic-{place:06}",
            headers={"n": str(place)},
            **self._fields(place),
        )

    def _due(self, place: int) -> EnvelopeFields:
        """A delay, or in turn an instant that many share."""
        bursts = self._random.randrange(1, 4)
        if place % 2:
            return {"delay": f"{200 + bursts * BURST_MS}ms"}
        return {"at": (now_ms() // BURST_MS + 1 + bursts) * BURST_MS}


def _print_of(envelope: Envelope) -> str:
    properties = msgspec.structs.asdict(envelope.properties)
    return fingerprint(envelope.body, envelope.key, envelope.headers, properties)
