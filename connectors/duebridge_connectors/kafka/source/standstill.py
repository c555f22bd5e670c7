"""Notices a record at which a client stands still, and says which: nothing behind it is read."""

import logging
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from duebridge.errors import BridgeError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Arrival
from duebridge_connectors.kafka.source.consumer import RecordFailed
from duebridge_connectors.kafka.source.logs import Logs

TRIES = 3
STILL_S = 30.0
HOW_TO_GO_ON = "docs/runbooks/intake-down.md says how to go on"

log = logging.getLogger(__name__)


class FailedPlaces:
    """The records at which one connection after the other ends; a partition has one at a time."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._failed: dict[int, tuple[RecordFailed, int]] = {}  # by partition, with tries

    def pass_by(self, arrivals: Sequence[Arrival], logs: Logs) -> bool:
        """Forget those from which on a record came; return whether this member has none."""
        if self._failed:
            for log_, _, offset in (each.handle for each in arrivals):
                if log_.part in self._failed and offset >= self._failed[log_.part][0].offset:
                    del self._failed[log_.part]
        return not self._held(logs)

    def forget(self) -> None:
        """Forget them: the topic is another one."""
        self._failed.clear()

    def note(self, error: BridgeError) -> None:
        """Note what ended a connection; log the place once it has ended several."""
        if not isinstance(error, RecordFailed):
            return
        before, tries = self._failed.get(error.part, (error, 0))
        tries = tries + 1 if before.offset == error.offset else 1
        self._failed[error.part] = error, tries
        if tries == TRIES:
            log.error("%s", self._text(error))

    def check(self, logs: Logs) -> None:
        """Raise `BrokerUnavailable` where one has ended several: it is no use to look well."""
        for error, tries in self._held(logs):
            if tries >= TRIES:
                raise BrokerUnavailable(self._text(error))

    def _held(self, logs: Logs) -> list[tuple[RecordFailed, int]]:
        """Return those of this member's partitions, or all while it has not got any yet."""
        failed = self._failed.items()
        return [each for part, each in failed if part in logs.owned or not logs.was_assigned]

    def _text(self, error: RecordFailed) -> str:
        where = f"partition {error.part}: cannot be read from offset {error.offset} on"
        return (
            f"topic {self._topic}, {where}, after {TRIES} tries and more: {error}; {HOW_TO_GO_ON}"
        )


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
