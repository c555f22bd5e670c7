"""The port through which an intake takes messages in: batches out of a broker, settled afterwards.

`BrokerType.open_source` returns one. An intake has one source and one thread.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from duebridge.envelope import Headers, Properties, Target
from duebridge.ports.settings import Model


class LogPosition(msgspec.Struct, frozen=True, gc=False):
    """The position of a message in a log; every earlier message of the log is known by then.

    `log` names one partition of one life of a topic, or a stream: a topic that was deleted and
    recreated is another log. `epoch` is its leader's when it was written, so that an offset that
    was truncated away and written again is a later position. Positions of one log are ordered by
    (epoch, offset).
    """

    log: str
    epoch: int
    offset: int


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """One message of a source.

    `id` is the same at each redelivery, and empty where the broker has nothing to tell messages
    apart by. `key` is Kafka's, and the id where an intake replaces by key. `headers` have every
    header of the message, in order. `onward` is where a message of a declared intake is due.
    `origin` is the topic or queue that a failed message came from, empty if it says none.
    `sent_at_ms` is the broker's timestamp of the message, 0 for none. `is_redelivered`: the broker
    has handed it to a consumer before. `is_id_unique`: no other message ever has the id.
    `message_id` is that of a stream's message, whose `id` is its place, and does what `key` does.
    """

    body: bytes | None
    id: str = ""
    key: bytes | None = None
    headers: Headers = ()
    properties: Properties | None = None
    place: LogPosition | None = None
    onward: Target | None = None
    origin: str = ""
    sent_at_ms: int = 0
    handle: Any = None
    """The source's own, to settle it by."""
    is_redelivered: bool = False
    is_id_unique: bool = False
    message_id: str = ""
    unreadable: str = ""
    """Why the client cannot read the message as it was sent: it is refused for that."""


class SourceSettings(Model):
    """The fields of `intakes.NAME.source`; a subclass adds those of its broker type."""

    broker: str
    """A name under `brokers`."""

    def shared(self) -> Mapping[str, str]:
        """Return what is read, by its fields: two intakes of it would each get a part."""
        return {name: str(value) for name, value in self.model_dump().items()}

    def target(self) -> Target | None:
        """Return the target whose messages are read; None, the default, where a type has none.

        An intake must not send there itself: what it sends would come back for ever.
        """
        return None


class SourcePlan(msgspec.Struct, frozen=True):
    """The plan by which a source serves its intake.

    A batch has at most `batch` messages and `batch_bytes` of bodies (one message may have more);
    the client holds at most `in_hand` messages and about `in_hand_bytes` beyond it.
    """

    intake: str
    broker: str
    source: Mapping[str, Any]
    """The fields of `intakes.NAME.source`, without the broker."""
    declare: Mapping[str, Any] | None = None
    """Those of `intakes.NAME.declare`, with defaults."""
    dead_letter: Target | None = None
    batch: int = 500
    batch_bytes: int = 512 * 1024
    in_hand: int = 1000
    in_hand_bytes: int = 16 * 1024 * 1024


class Positions(Protocol):
    """The positions of an intake in logs that keep none themselves; they only go forward."""

    def read(self, log: str) -> int | None:
        """Return the offset of the last message that was settled. Raises `StoreError`."""
        ...

    def write(self, log: str, offset: int) -> None:
        """Note that every message up to an offset is settled. Raises `StoreError`."""
        ...


class Source(Protocol):
    """A consumer of one queue, stream or topic. Used by one thread, but for `close` and `lag`.

    It connects on first use. After any error of `receive` or `settle` the next call connects
    again, at its own growing pace; messages that were not settled come again.
    """

    runs_ahead: bool
    """Whether `receive` may be called once more before the batch is settled; then in order."""

    def receive(self, wait_s: float) -> Sequence[Arrival]:
        """Return a batch in the order of its logs; empty if none came within `wait_s`.

        The next call comes once all of them are settled, with `runs_ahead` one call earlier: at
        most 1,000 messages of a log may be unsettled, since the store knows no more of them apart.
        Raises `BrokerUnavailable`, and `ConfigError` where source or right are missing.
        """
        ...

    def settle(self, arrivals: Sequence[Arrival]) -> None:
        """Tell the broker that the messages are kept elsewhere: it may forget them.

        Raises `BrokerUnavailable` where it may not have heard that: they may come again; and
        `ConfigError` where a right is missing by now.
        """
        ...

    def owns(self, arrival: Arrival) -> bool:
        """Return whether a message that was not settled is still this consumer's to settle.

        False where it has gone back for good, as a partition does to another member of a group: it
        comes again, there or here, and nothing more is to be done for it. Never True again then.
        """
        ...

    def give_back(self) -> None:
        """Have everything that was received and not settled come again, after a new connect.

        For messages that nobody holds any more: a later `settle` must not pass them.
        """
        ...

    def keep_alive(self) -> None:
        """Keep the place in the group while a batch waits for the store; takes nothing in."""
        ...

    def lag(self) -> int | None:
        """Return this consumer's share of what waits at the broker, None if not known now.

        Never blocks. The shares of all consumers of a queue or group add up to what waits.
        """
        ...

    def close(self) -> None:
        """Close the connection; what was not settled goes back to the broker. Idempotent."""
        ...
