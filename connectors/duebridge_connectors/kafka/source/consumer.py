"""The interface of a client to the source's policy, and its errors."""

from collections.abc import Mapping
from typing import Protocol

from duebridge.errors import BridgeError
from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Arrival
from duebridge_connectors.kafka.source.logs import CommittedOffset, Logs


class CommitRefused(BridgeError):
    """The group has moved on, or is about to: the partitions' next owners get the records again."""


class RecordFailed(BrokerUnavailable):
    """The client says that it cannot read the record, or the batch, at an offset."""

    def __init__(self, said: str, part: int, offset: int) -> None:
        super().__init__(said)
        self.part, self.offset = part, offset


class Question(Protocol):
    """A question on its way to a broker."""

    def is_answered(self) -> bool:
        """Return whether `answer` does not block."""
        ...

    def answer(self, within_s: float) -> str:
        """Return the topic's id, empty if the broker has none.

        Raises `ConfigError` for a missing topic, and `BrokerUnavailable`.
        """
        ...


class GroupConsumer(Protocol):
    """A connected client. Each method raises `BrokerUnavailable` and `ConfigError`.

    `lag` may be called by another thread; the other methods by one.
    """

    def ask_topic(self) -> Question:
        """Ask for the topic's id."""
        ...

    def join(self, logs: Logs) -> None:
        """Become a member of the group, which keeps `logs` to what this member owns."""
        ...

    def take(self, wait_s: float, most: int) -> list[Arrival]:
        """Return up to `most` records, in the order of their logs; empty after `wait_s`."""
        ...

    def hold(self) -> None:
        """Take part in the group and take no records, until the next `take`."""
        ...

    def commit(self, positions: Mapping[int, CommittedOffset]) -> None:
        """Commit positions of partitions. Raises `CommitRefused`."""
        ...

    def lag(self) -> int | None:
        """Return the number of records that wait at the broker; sends nothing."""
        ...

    def close(self) -> None:
        """Leave the group, for a limited time."""
        ...
