"""The links break what they say they break, and count it."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.faults.proxy import Link, Wires

WITHIN_S = 5.0
SLOW_S = 0.1


@pytest.fixture
def heard() -> list[bytes]:
    """What the server got."""
    return []


@pytest.fixture
def link(heard: list[bytes]) -> Iterator[Link]:
    """A link to a server that sends everything back."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = threading.Thread(target=echo, args=(listener, heard))
    server.start()
    wires = Wires()
    link = wires.link(listener.getsockname()[1])
    yield link
    wires.close([link])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    server.join()


def echo(listener: socket.socket, heard: list[bytes]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client, suppress(OSError):
            while data := client.recv(4096):
                heard.append(data)
                client.sendall(data)


@pytest.fixture
def client(link: Link) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", link.port), WITHIN_S) as opened:
        assert asked(opened, b"hello") == b"hello"
        yield opened


def asked(client: socket.socket, request: bytes) -> bytes:
    client.sendall(request)
    return client.recv(4096)


def rest_of(client: socket.socket) -> bytes:
    """What comes before the end, however the connection ends."""
    try:
        return client.recv(4096)
    except ConnectionResetError:
        return b""


def test_cut_ends_connections_and_takes_new_ones(link: Link, client: socket.socket) -> None:
    assert link.cut() == 1
    assert rest_of(client) == b""
    with socket.create_connection(("127.0.0.1", link.port), WITHIN_S) as another:
        assert asked(another, b"again") == b"again"


def test_reset_is_felt_as_a_reset(link: Link, client: socket.socket) -> None:
    assert link.reset() == 1
    with pytest.raises(ConnectionResetError):
        client.recv(4096)


def test_hole_holds_back_and_closes_nothing(
    link: Link, client: socket.socket, heard: list[bytes]
) -> None:
    link.hole()
    client.sendall(b"held")
    client.settimeout(SLOW_S)
    with pytest.raises(TimeoutError):
        client.recv(4096)
    assert link.held_bytes == len(b"held")
    assert heard == [b"hello"]
    client.settimeout(WITHIN_S)
    link.heal()
    assert client.recv(4096) == b"held"


def test_slow_delays_both_ways(link: Link, client: socket.socket) -> None:
    link.slow(SLOW_S)
    began = time.monotonic()
    assert asked(client, b"slowly") == b"slowly"
    assert time.monotonic() - began >= 2 * SLOW_S
    assert link.slowed == 2


def test_drop_replies_lets_the_request_be_done(
    link: Link, client: socket.socket, heard: list[bytes]
) -> None:
    link.drop_replies(1, lambda request: b"write" in request)
    assert asked(client, b"read") == b"read"
    client.sendall(b"write")
    assert rest_of(client) == b""
    assert heard[-1] == b"write"
    assert link.lost_replies == 1
