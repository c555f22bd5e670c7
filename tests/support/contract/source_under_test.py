"""What a connector's tests provide to the contract of sources, and how the contract reads them."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from duebridge.ports.publisher import BrokerUnavailable
from duebridge.ports.source import Arrival, Source

WITHIN_S = 60.0
WAIT_S = 0.2  # of one receive


class SourceUnderTest(Protocol):
    """A real broker with queues, or topics of one partition, of the test's own."""

    silent_s: float
    """`open(..., impatient=True)`: a source that is silent for longer than this is given up."""

    def create(self) -> str:
        """Make an empty one, and return its name."""

    def missing(self) -> str:
        """Return the name of one that does not exist."""

    def send(self, name: str, bodies: Sequence[bytes]) -> None:
        """Put messages in; the broker has them when it returns."""

    def open(self, name: str, *, impatient: bool = False, **plan: Any) -> Source:
        """Return a source that reads it from its beginning; `plan`: fields of `SourcePlan`."""

    def open_at(self, port: int) -> Source:
        """Return a source of a broker said to be at this port of 127.0.0.1; none is there."""

    def disconnect(self, source: Source) -> None:
        """End the connections of an open source, as a network does."""


class Origin(NamedTuple):
    """A queue or topic, and what a configuration says of its broker and of it."""

    broker: SourceUnderTest
    name: str
    settings: dict[str, Any]
    source: dict[str, str]


class Memory:
    """Positions that a test keeps."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    def read(self, log: str) -> int | None:
        return self.found.get(log)

    def write(self, log: str, offset: int) -> None:
        self.found[log] = offset


def bodies(arrivals: Sequence[Arrival]) -> list[bytes | None]:
    return [arrival.body for arrival in arrivals]


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [str(number).encode().ljust(size, b".") for number in range(count)]


def received(source: Source, within_s: float = WITHIN_S) -> list[Arrival]:
    """Return the next batch that has a message; fails the test if none comes.

    A batch ends where a message is still on its way: its size is the broker's affair.
    """
    give_up_at = time.monotonic() + within_s
    while time.monotonic() < give_up_at:
        with suppress(BrokerUnavailable):
            if batch := source.receive(WAIT_S):
                return list(batch)
    raise AssertionError(f"nothing came within {within_s:g} s")


def gathered(source: Source, count: int) -> list[Arrival]:
    """Receive batch after batch until so many messages came; nothing is settled."""
    found: list[Arrival] = []
    while len(found) < count:
        found += received(source)
    return found


def settled(source: Source, count: int, within_s: float = WITHIN_S) -> list[Arrival]:
    """Receive and settle batch after batch until so many messages came; the last may bring more."""
    found: list[Arrival] = []
    while len(found) < count:
        batch = received(source, within_s)
        source.settle(batch)
        found += batch
    return found


def is_quiet(source: Source) -> bool:
    """Whether nothing more comes."""
    return not any(source.receive(WAIT_S) for _ in range(3))


def raises_soon(source: Source, error: type[Exception]) -> None:
    """Receive until it raises that; fails the test if it does not within a minute."""
    give_up_at = time.monotonic() + WITHIN_S
    while time.monotonic() < give_up_at:
        try:
            source.receive(WAIT_S)
        except error:
            return
    raise AssertionError(f"no {error.__name__} within {WITHIN_S:g} s")
