"""Frames, written without pika's help, and the two things of pika that have no public name.

pika encodes three frames for each message and gives each to the socket by itself. Here a run of
messages is one buffer: less work, and above all fewer system calls, each of which lets go of the
interpreter while other threads want it.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from pika import spec
from pika.exceptions import ConnectionClosedByClient

from duebridge_connectors.rabbitmq.batch import Parcel
from duebridge_connectors.rabbitmq.errors import Unencodable

# Small enough that a socket which takes it in parts does not make pika copy the rest for long.
BUFFER_BYTES: Final = 128 * 1024
OVERHEAD_BYTES: Final = 8  # of a frame: type, channel, size and end

_FRAME = Struct(">BHI").pack
_METHOD, _HEADER, _BODY = spec.FRAME_METHOD, spec.FRAME_HEADER, spec.FRAME_BODY
_END: Final = bytes([spec.FRAME_END])


@lru_cache(maxsize=4096)
def publish_payload(exchange: str, routing_key: str) -> bytes:
    """Return the method frame's payload of a mandatory basic.publish. Raises `Unencodable`."""
    sizes = len(exchange.encode()), len(routing_key.encode())
    if max(sizes) > 255:
        raise Unencodable(f"exchange, routing_key: expected at most 255 bytes; got {max(sizes)}")
    method = spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)
    return b"".join((spec.Basic.Publish.INDEX.to_bytes(4, "big"), *method.encode()))


def buffers(parcels: Iterable[Parcel], channel: int, frame_max: int) -> Iterator[bytes]:
    """Give the frames of each parcel in order, in buffers of about `BUFFER_BYTES`."""
    body_max = frame_max - OVERHEAD_BYTES if frame_max else BUFFER_BYTES
    parts: list[bytes] = []
    size = 0
    for parcel in parcels:
        method, header, body = parcel.method, parcel.header, parcel.body
        parts += _FRAME(_METHOD, channel, len(method)), method, _END
        parts += _FRAME(_HEADER, channel, len(header)), header, _END
        for start in range(0, len(body), body_max):
            piece = body[start : start + body_max]
            parts += _FRAME(_BODY, channel, len(piece)), piece, _END
            size += len(piece) + len(header)
            if size >= BUFFER_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
    if parts:
        yield b"".join(parts)


def emit(connection: Any, data: bytes) -> None:
    """Write whole frames, as pika's own channels do."""
    connection._output_marshaled_frames([data])


def abort(connection: Any) -> None:
    """Close the socket without a word to the broker, which does not answer any more."""
    connection._terminate_stream(ConnectionClosedByClient(200, "given up unanswered"))
