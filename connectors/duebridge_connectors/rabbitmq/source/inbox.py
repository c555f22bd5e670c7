"""Gathers the messages of one channel out of the bytes that the broker sends.

pika takes three times as long, and does not keep every header as it was.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from pika import spec
from pika.exceptions import InvalidFrameError

from duebridge_connectors.rabbitmq.content import (
    BODY_SIZE,
    BODY_SIZE_AT,
    FRAME,
    FRAME_BYTES,
    HEAD_BYTES,
)

_TAG = Struct(">Q").unpack_from
_METHOD, _HEADER = spec.FRAME_METHOD, spec.FRAME_HEADER
_DELIVER: Final = spec.Basic.Deliver.INDEX.to_bytes(4, "big")


class RawMessage(NamedTuple):
    """A message as it came: its content header's payload is not decoded."""

    tag: int
    routing_key: bytes
    header: bytes
    body: bytes
    is_redelivered: bool = False


class Inbox:
    """The messages of a channel that nobody has taken yet, oldest first, and their bytes."""

    def __init__(self, channel_number: int) -> None:
        self.messages: deque[RawMessage] = deque()
        self.size = 0
        self._channel = channel_number
        self._tag = 0
        self._routing_key = self._header = b""
        self._is_redelivered = False
        self._missing = 0
        self._pieces: list[bytes] = []

    def feed(self, data: bytes, other: Callable[[bytes], None]) -> bytes:
        """Keep the messages; pass on each other frame; return what is no whole frame yet."""
        at, end = 0, len(data)
        while end - at >= FRAME_BYTES:
            kind, channel, size = FRAME(data, at)
            start = at + HEAD_BYTES
            stop = start + size
            if stop >= end:
                break
            if data[stop] != spec.FRAME_END:
                raise InvalidFrameError("Invalid FRAME_END marker")
            if channel != self._channel or (
                kind == _METHOD and data[start : start + 4] != _DELIVER
            ):
                other(data[at : stop + 1])
            elif kind == _METHOD:
                self._begin(data, start + 4)
            elif kind == _HEADER:
                self._header = data[start:stop]
                (self._missing,) = BODY_SIZE(data, start + BODY_SIZE_AT)
                if not self._missing:
                    self._end(b"")
            else:
                self._add(data[start:stop])
            at = stop + 1
        return data[at:] if at else data

    def take(self) -> RawMessage:
        """Return the oldest message, and keep it no more."""
        message = self.messages.popleft()
        self.size -= len(message.body) + len(message.header)
        return message

    def _begin(self, data: bytes, at: int) -> None:
        at += 1 + data[at]  # the consumer's tag
        (self._tag,) = _TAG(data, at)
        self._is_redelivered = bool(data[at + 8])
        at += 9
        at += 1 + data[at]  # the exchange
        self._routing_key = data[at + 1 : at + 1 + data[at]]

    def _add(self, piece: bytes) -> None:
        self._missing -= len(piece)
        if self._missing > 0:
            self._pieces.append(piece)
            return
        if self._pieces:
            piece = b"".join((*self._pieces, piece))
            self._pieces = []
        self._end(piece)

    def _end(self, body: bytes) -> None:
        self.messages.append(
            RawMessage(self._tag, self._routing_key, self._header, body, self._is_redelivered)
        )
        self.size += len(body) + len(self._header)
