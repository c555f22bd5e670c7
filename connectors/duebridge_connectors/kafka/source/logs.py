"""The partitions that a member owns, and the arrivals of their records.

A `Log` is one partition during one assignment: a partition that was taken away and came back is
another `Log`, so that what was read before is neither delivered nor committed after.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from duebridge.ports.source import Arrival, LogPosition

Headers = Sequence[tuple[str, bytes | None]]

ORIGIN = "x-origin"
SPRINGS = ("kafka_original-topic", "kafka_dlt-original-topic")  # of retries, of dead letters
_ORIGINS = frozenset((ORIGIN, *SPRINGS))
_LENGTHS = frozenset(map(len, _ORIGINS))


class CommittedOffset(NamedTuple):
    """A group's commit: the next offset, the leader epoch before it, the topic's id."""

    offset: int
    epoch: int
    topic_id: str


class Log:
    """One partition of one life of a topic, during one assignment."""

    __slots__ = ("is_owned", "name", "part", "prefix", "topic_id")

    def __init__(self, part: int, topic_id: str, name: str, prefix: str) -> None:
        self.part, self.topic_id = part, topic_id
        self.name, self.prefix = name, prefix
        self.is_owned = True

    def arrival(
        self,
        epoch: int,
        offset: int,
        sent_at_ms: int,
        key: bytes | None,
        body: bytes | None,
        headers: Headers | None,
        unreadable: str = "",
    ) -> Arrival:
        """Return the arrival of a record; runs for every message, so arguments go by position."""
        return Arrival(
            body,
            f"{self.prefix}{offset}:{sent_at_ms}",
            key,
            tuple(headers) if headers else (),
            None,
            LogPosition(self.name, epoch, offset) if self.name else None,
            None,
            origin_of(headers) if headers else "",
            sent_at_ms if sent_at_ms > 0 else 0,  # -1: it has none
            (self, epoch, offset),
            is_id_unique=sent_at_ms > 0,  # a recreated topic has the same offsets
            unreadable=unreadable,
        )


class Logs:
    """The logs that a member owns of one life of a topic, by partition."""

    def __init__(self, broker: str, topic: str, topic_id: str) -> None:
        self._prefix = f"{broker}:{topic}"
        self._name = f"{broker}/{topic}/{topic_id}" if topic_id else ""
        self.topic_id = topic_id
        self.owned: Mapping[int, Log] = {}
        self.was_assigned = False

    def begin(self, parts: Iterable[int]) -> None:
        """Own partitions from now on."""
        parts = list(parts)
        self.end(parts)
        self.owned = {**self.owned, **{part: self._log(part) for part in parts}}
        self.was_assigned = True

    def end(self, parts: Iterable[int]) -> None:
        """Own partitions no longer."""
        gone = set(parts)
        for part in gone:
            if part in self.owned:
                self.owned[part].is_owned = False
        self.owned = {part: log for part, log in self.owned.items() if part not in gone}

    def start_of(self, committed: CommittedOffset | None) -> CommittedOffset | None:
        """Return the offset to begin at, None for the beginning of the log.

        An offset that was committed in another life of the topic says nothing of this one. One
        without an id is trusted: an operator's tool sets such.
        """
        if committed is None or committed.topic_id not in ("", self.topic_id):
            return None
        return committed

    def _log(self, part: int) -> Log:
        name = f"{self._name}/{part}" if self._name else ""
        return Log(part, self.topic_id, name, f"{self._prefix}:{part}:")


def origin_of(headers: Headers) -> str:
    """Return the topic that a failed message came from: what duebridge's header says, or Spring's.

    Of a repeated header duebridge's last one counts, and Spring's first: Spring adds one a hop.
    """
    found: dict[str, str] = {}
    for name, value in headers:
        if len(name) not in _LENGTHS or not value:  # cheaper than to lower every name
            continue
        lower = name.lower()
        if lower in _ORIGINS and (lower == ORIGIN or lower not in found):
            found[lower] = value.decode("utf-8", "replace")
    if not found:
        return ""
    return next(found[name] for name in (ORIGIN, *SPRINGS) if name in found)
