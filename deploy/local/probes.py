"""Does a server answer in its own protocol? Asked over a raw socket, without any client."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

SECONDS = 2.0
API_VERSIONS = 18
CONNECTION_START = (10, 10)


def _exactly(caller: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        chunk = caller.recv(size - len(received))
        if not chunk:
            raise ConnectionError("closed early")
        received += chunk
    return received


def _redis(caller: socket.socket) -> bool:
    caller.sendall(b"PING\r\n")
    # While it loads its file, Redis answers "-LOADING".
    return _exactly(caller, 7) == b"+PONG\r\n"


def _rabbitmq(caller: socket.socket) -> bool:
    caller.sendall(b"AMQP\x00\x00\x09\x01")
    kind, channel, _size, klass, method = struct.unpack(">BHIHH", _exactly(caller, 11))
    return (kind, channel) == (1, 0) and (klass, method) == CONNECTION_START


def _kafka(caller: socket.socket) -> bool:
    client = b"duebridge"
    asked = struct.pack(">hhih", API_VERSIONS, 0, 7, len(client)) + client
    caller.sendall(struct.pack(">i", len(asked)) + asked)
    _size, correlation, error = struct.unpack(">iih", _exactly(caller, 10))
    return (correlation, error) == (7, 0)


PROBES: dict[str, Callable[[socket.socket], bool]] = {
    "redis": _redis,
    "rabbitmq": _rabbitmq,
    "kafka": _kafka,
}


def answers(name: str, host: str, port: int) -> bool:
    """Tell whether a server answers at this address as `name` should."""
    try:
        with socket.create_connection((host, port), timeout=SECONDS) as caller:
            return PROBES[name](caller)
    except OSError:
        return False
