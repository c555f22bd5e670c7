"""Tells a stream that was deleted and recreated under its name from the former one.

The broker does not: offsets begin at 0 again, and one beyond the end is waited for in silence,
while what comes before it is skipped. So each connect first reads the oldest message that is there.
In one life its offset only rises, and at one offset is always the same message.

Kept among the positions, for the stream's log `B:Q` (`B:Q@1` in its second life, and so on):
`B:Q#life`, the number of the life, and `LOG#first`, offset and hash of its oldest message.
"""

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

    def present(self, known: StreamLife, oldest: RawMessage) -> StreamLife:
        """Return the life that has this oldest message: the known one or a new one, noted.

        Raises `StoreError`.
        """
        first, hashed = _mark(oldest)
        mark = first << HASH_BITS | hashed
        noted = self._positions.read(f"{known.log}#first")
        life = known
        if noted is not None and (first < noted >> HASH_BITS or _is_other(noted, mark)):
            life = self._life(known.number + 1)
            self._positions.write(f"{self._stream}#life", life.number)
        if life is not known or noted != mark:
            self._positions.write(f"{life.log}#first", mark)
        return life

    def _life(self, number: int) -> StreamLife:
        log = f"{self._stream}@{number}" if number else self._stream
        return StreamLife(number, log, self._positions.read(log))


def _is_other(noted: int, mark: int) -> bool:
    """Whether two messages of one offset differ."""
    return noted >> HASH_BITS == mark >> HASH_BITS and noted != mark


def _mark(message: RawMessage) -> tuple[int, int]:
    """Return a message's offset, and a hash of the parts that all broker versions encode alike."""
    headers, fields = decode(message.header)
    said = f"{fields.get('message_id', '')}\0{fields.get('timestamp', 0)}\0".encode()
    hashed = blake2b(message.routing_key + b"\0" + said + message.body, digest_size=8).digest()
    return offset_of(headers), int.from_bytes(hashed) >> (64 - HASH_BITS)
