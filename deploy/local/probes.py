"""Does a server answer in its own protocol? Asked over a raw socket, without any client."""

from __future__ import annotations

import socket

SECONDS = 2.0
# What a server is asked, and the bytes that its answer has at an offset.
PROBES = {
    # While it loads its file, Redis answers "-LOADING".
    "redis": (b"PING\r\n", 0, b"+PONG\r\n"),
    # The method connection.start of AMQP 0-9-1.
    "rabbitmq": (b"AMQP\0\0\x09\x01", 7, b"\0\x0a\0\x0a"),
    # ApiVersions, version 0, correlation id 7: the same id and no error.
    "kafka": (b"\0\0\0\x0b\0\x12\0\0\0\0\0\x07\0\x01d", 4, b"\0\0\0\x07\0\0"),
}


def is_answered(name: str, caller: socket.socket) -> bool:
    """Ask, and judge the answer."""
    request, offset, expected = PROBES[name]
    caller.sendall(request)
    with caller.makefile("rb") as answer:
        return answer.read(offset + len(expected))[offset:] == expected


def answers(name: str, host: str, port: int) -> bool:
    """Tell whether a server answers at this address as `name` should."""
    try:
        with socket.create_connection((host, port), timeout=SECONDS) as caller:
            return is_answered(name, caller)
    except OSError:
        return False
