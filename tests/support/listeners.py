"""Ports where no broker is: nobody listens, or somebody accepts and never answers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


def free_port() -> int:
    """Return a port of 127.0.0.1 where nobody listens: a connection is refused."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def silent_listener() -> Iterator[int]:
    """Give a port that takes connections and never says a word.

    Nobody has to accept: the kernel completes the handshake of what is in the backlog.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield int(server.getsockname()[1])
