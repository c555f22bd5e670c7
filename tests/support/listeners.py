"""Ports where no broker is: nobody listens, or somebody accepts and never answers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.servers import free_port as free_port


@contextmanager
def silent_listener() -> Iterator[int]:
    """Give a port that takes connections and never says a word.

    Nobody has to accept: the kernel completes the handshake of what is in the backlog.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield int(server.getsockname()[1])
