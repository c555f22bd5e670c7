"""Notices a record at which a client stands still, and says which: nothing behind it is read."""

import logging
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from duebridge.errors import BridgeError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Arrival
from duebridge_connectors.kafka.source.consumer import RecordFailed

TRIES = 3
STILL_S = 30.0
HOW_TO_GO_ON = "docs/runbooks/intake-down.md says how to go on"

log = logging.getLogger(__name__)


class FailedPlace:
    """The record at which one connection after the other ends."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.forget()

    def pass_by(self, arrivals: Sequence[Arrival]) -> bool:
        """Forget it if a record from there on came; return whether there is none."""
        if self._place is not None:
            part, offset = self._place
            handles = (each.handle for each in arrivals)
            if any(log_.part == part and at >= offset for log_, _, at in handles):
                self.forget()
        return self._place is None

    def forget(self) -> None:
        """Forget it: the topic is another one."""
        self._place: tuple[int, int] | None = None
        self._tries = 0

    def note(self, error: BridgeError) -> None:
        """Note what ended a connection; log the place once it has ended several in a row."""
        if not isinstance(error, RecordFailed):
            return
        place = error.part, error.offset
        self._tries = self._tries + 1 if place == self._place else 1
        self._place, self._error = place, error
        if self._tries == TRIES:
            log.error("%s", self._text())

    def check(self) -> None:
        """Raise `BrokerUnavailable` where one has ended several: it is no use to look well."""
        if self._tries >= TRIES:
            raise BrokerUnavailable(self._text())

    def _text(self) -> str:
        part, offset = self._place or (-1, -1)
        where = f"topic {self._topic}, partition {part}: cannot be read from offset {offset} on"
        return f"{where}, after {TRIES} tries and more: {self._error}; {HOW_TO_GO_ON}"


class StillPartitions:
    """The partitions from which nothing comes, although records wait there."""

    def __init__(self, topic: str, now: Callable[[], float] = monotonic) -> None:
        self._topic, self._now = topic, now
        self._since: dict[int, tuple[int, float]] = {}
        self._said: dict[int, int] = {}

    def forget(self) -> None:
        """Begin anew, after a time in which nothing was to come."""
        self._since.clear()

    def begin(self, parts: Iterable[int]) -> None:
        """Begin partitions anew, which were another member's."""
        for part in parts:
            self._since.pop(part, None)

    def note(self, part: int, offset: int, waiting: int) -> None:
        """Note where a partition goes on, and what waits there; log it once after `STILL_S`."""
        if waiting <= 0 or self._since.get(part, (None,))[0] != offset:
            self._since[part] = offset, self._now()
            return
        still_s = self._now() - self._since[part][1]
        if still_s < STILL_S or self._said.get(part) == offset:
            return
        self._said[part] = offset
        log.warning(
            "topic %s, partition %d: nothing came from offset %d on for %d s, though %d records "
            "wait: this client cannot read the next one, or a transaction is open; %s",
            self._topic,
            part,
            offset,
            still_s,
            waiting,
            HOW_TO_GO_ON,
        )
