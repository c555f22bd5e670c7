"""The source of `type: memory`: a queue in this process, which a test fills and looks at."""

import threading
from collections.abc import Sequence
from itertools import islice
from typing import ClassVar

from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Arrival, SourcePlan


class MemoryQueue:
    """The queue that sources of this name take from. Thread-safe.

    `is_available` may be set to False: then its sources lose what they have taken, as with any
    broker, and raise `BrokerUnavailable`.
    """

    _named: ClassVar[dict[str, "MemoryQueue"]] = {}
    _named_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[Arrival] = []
        self._settled: list[Arrival] = []
        self._is_available = True
        self.kept_alive = 0

    @classmethod
    def named(cls, name: str) -> "MemoryQueue":
        """Return this process's queue with this name."""
        with cls._named_lock:
            return cls._named.setdefault(name, cls())

    def put(self, *arrivals: Arrival) -> None:
        """Add messages at the end."""
        with self._changed:
            self._waiting += arrivals
            self._changed.notify_all()

    @property
    def is_available(self) -> bool:
        """Whether the broker answers."""
        return self._is_available

    @is_available.setter
    def is_available(self, value: bool) -> None:
        with self._changed:
            self._is_available = value
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """The number of messages that no source has taken."""
        with self._changed:
            return len(self._waiting)

    @property
    def settled(self) -> list[Arrival]:
        """A copy of the settled messages, in the order they were settled."""
        with self._changed:
            return list(self._settled)

    def all_are_settled(self, count: int, within_s: float) -> bool:
        """Return True as soon as `count` messages are settled, False after `within_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._settled) >= count, within_s)

    def take(self, most: int, most_bytes: int, wait_s: float) -> list[Arrival]:
        """Take messages off the front, within the bounds but for the first."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or not self._is_available, wait_s)
            self._refuse_while_away()
            taken = list(islice(self._fitting(most_bytes), most))
            del self._waiting[: len(taken)]
            return taken

    def settle(self, arrivals: Sequence[Arrival]) -> None:
        """Forget messages that a source has taken."""
        with self._changed:
            self._refuse_while_away()
            self._settled += arrivals
            self._changed.notify_all()

    def give_back(self, arrivals: Sequence[Arrival]) -> None:
        """Put messages back that a source has taken, in front."""
        with self._changed:
            self._waiting[:0] = arrivals
            self._changed.notify_all()

    def _refuse_while_away(self) -> None:
        if not self._is_available:
            raise BrokerUnavailable("the memory broker is not available")

    def _fitting(self, most_bytes: int) -> "list[Arrival]":
        size, count = 0, 0
        for arrival in self._waiting:
            size += len(arrival.body or b"")
            if count and size > most_bytes:
                break
            count += 1
        return self._waiting[:count]


class MemorySource:
    """A `Source` without a broker; what it has not settled comes again after a disconnect."""

    runs_ahead = True

    def __init__(self, queue: MemoryQueue, plan: SourcePlan) -> None:
        self._queue = queue
        self._plan = plan
        self._taken: list[Arrival] = []
        self._is_closed = False

    def receive(self, wait_s: float) -> Sequence[Arrival]:
        """Return the next batch of the queue."""
        plan = self._plan
        try:
            taken = self._queue.take(plan.batch, plan.batch_bytes, wait_s)
        except BrokerUnavailable:
            self.give_back()
            raise
        self._taken += taken
        return taken

    def settle(self, arrivals: Sequence[Arrival]) -> None:
        """Settle messages."""
        try:
            self._queue.settle(arrivals)
        except BrokerUnavailable:
            self.give_back()
            raise
        settled = {id(arrival) for arrival in arrivals}
        self._taken = [arrival for arrival in self._taken if id(arrival) not in settled]

    def keep_alive(self) -> None:
        """Count the call."""
        self._queue.kept_alive += 1

    def owns(self, arrival: Arrival) -> bool:
        """Return whether the message was taken, and neither settled nor lost."""
        return any(each is arrival for each in self._taken)

    def give_back(self) -> None:
        """Give back what was not settled."""
        self._queue.give_back(self._taken)
        self._taken = []

    def lag(self) -> int | None:
        """Return the number of waiting messages."""
        return self._queue.waiting if self._queue.is_available else None

    def close(self) -> None:
        """Give back what was not settled."""
        if not self._is_closed:
            self._is_closed = True
            self.give_back()
