"""A connection on which what the broker returns cannot raise, whatever its headers are."""

from typing import Any

from pika import spec
from pika.adapters.select_connection import SelectConnection
from pika.exceptions import InvalidFrameError
from pika.frame import Header

from duebridge_connectors.rabbitmq.content import (
    BODY_SIZE,
    BODY_SIZE_AT,
    FRAME,
    FRAME_BYTES,
    HEAD_BYTES,
    decode,
)


class PublishConnection(SelectConnection):  # type: ignore[misc]
    """A connection of pika; a returned message has no property but its `message_id`."""

    _frame_buffer: bytes

    def _read_frame(self) -> tuple[int, Any]:
        data = self._frame_buffer
        if len(data) >= FRAME_BYTES and data[0] == spec.FRAME_HEADER:
            return _content_header(data)
        other: tuple[int, Any] = super()._read_frame()
        return other


def _content_header(data: bytes) -> tuple[int, Header | None]:
    """Return the size of the frame that data begins with, and the frame; 0, None if it is cut."""
    _, channel, size = FRAME(data)
    stop = HEAD_BYTES + size
    if stop >= len(data):
        return 0, None
    if data[stop] != spec.FRAME_END:
        raise InvalidFrameError("Invalid FRAME_END marker")
    payload = data[HEAD_BYTES:stop]
    properties = spec.BasicProperties(message_id=decode(payload).fields.get("message_id"))
    return stop + 1, Header(channel, BODY_SIZE(payload, BODY_SIZE_AT)[0], properties)
