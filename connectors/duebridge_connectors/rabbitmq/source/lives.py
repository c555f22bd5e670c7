"""Tells a stream that was deleted and recreated under its name from the former one.

The broker does not: offsets begin at 0 again, and one beyond the end is waited for in silence,
while what comes before it is skipped. So each connect first reads the oldest message that is there.
In one life the message at an offset is always the same, on every node. The oldest one is not: each
replica drops old segments by itself, so a lower offset than before proves nothing; then the message
at an offset noted before is compared. A replica that lags has none there yet, as a short new stream
has: that is undecided.

Kept among the positions, for the stream's log `B:Q` (`B:Q@1` in its second life, and so on):
`B:Q#life`, the number of the life; `LOG#first`, offset and hash of the oldest message, the highest
ever seen; and once that is not the first one, `LOG#begin`, those of the first one.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

from duebridge.ports.source import Positions
from duebridge_connectors.rabbitmq.content import decode
from duebridge_connectors.rabbitmq.source.arrivals import offset_of
from duebridge_connectors.rabbitmq.source.inbox import RawMessage

HASH_BITS: Final = 20  # with an offset of 33 bits the most that a script counts exactly


class StreamLife(NamedTuple):
    """One life of a stream: its log, and the last offset of it that is settled, if any."""

    number: int
    log: str
    position: int | None


class StreamLives:
    """The lives of one stream, as all processes of its intake know them."""

    def __init__(self, positions: Positions, stream: str) -> None:
        self._positions = positions
        self._stream = stream

    def known(self) -> StreamLife:
        """Return the life of late; raises `StoreError`."""
        return self._life(self._positions.read(f"{self._stream}#life") or 0)

    def present(
        self, known: StreamLife, oldest: RawMessage, look: Callable[[int], RawMessage]
    ) -> StreamLife:
        """Return the life that has this oldest message: the known one or a new one, noted.

        `look` returns the message at an offset; what it raises leaves the question undecided.
        Raises `StoreError`.
        """
        mark, noted = mark_of(oldest), self._marks(known.log)
        expected = next((each for each in noted if _offset(each) >= _offset(mark)), None)
        if expected is None:
            self._note(known.log, noted, mark)
            return known
        is_oldest = _offset(expected) == _offset(mark)
        found = mark if is_oldest else mark_of(look(_offset(expected)))
        return known if found == expected else self._begun(known.number + 1, mark)

    def _begun(self, number: int, mark: int) -> StreamLife:
        life = self._life(number)
        self._positions.write(f"{self._stream}#life", number)
        self._positions.write(f"{life.log}#first", mark)
        return life

    def _marks(self, log: str) -> list[int]:
        """Return the marks of a life, the lowest first: a replica that lags has that one."""
        first = self._positions.read(f"{log}#first")
        if first is None:
            return []
        begin = self._positions.read(f"{log}#begin")
        return [first] if begin is None else [begin, first]

    def _note(self, log: str, noted: list[int], mark: int) -> None:
        if len(noted) == 1:
            self._positions.write(f"{log}#begin", noted[0])
        self._positions.write(f"{log}#first", mark)

    def _life(self, number: int) -> StreamLife:
        log = f"{self._stream}@{number}" if number else self._stream
        return StreamLife(number, log, self._positions.read(log))


def mark_of(message: RawMessage) -> int:
    """Return a message's offset, and a hash of the parts that all broker versions encode alike."""
    _, fields = decode(message.header)
    said = f"{fields.get('message_id', '')}\0{fields.get('timestamp', 0)}\0".encode()
    hashed = blake2b(message.routing_key + b"\0" + said + message.body, digest_size=8).digest()
    return offset_in(message) << HASH_BITS | int.from_bytes(hashed) >> (64 - HASH_BITS)


def offset_in(message: RawMessage) -> int:
    """Return the offset of a stream's message."""
    return offset_of(decode(message.header).headers)


def _offset(mark: int) -> int:
    return mark >> HASH_BITS
